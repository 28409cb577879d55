"""A review as SARIF 2.1.0, within what GitHub's code scanning takes."""

import gzip
import re
from collections import Counter
from typing import Any
from urllib.parse import quote

from agent_harness.types import Disposition, ReviewFinding, ReviewReport
from agent_harness_adapters.sinks import clean, dumped, flat, headline, level, lines, notes, ordered, raw, standing

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
RESULTS = 5_000
"""The host takes 25,000 and shows 5,000."""
GZIPPED = 9_000_000
"""Bytes; the host takes 10 MB."""
SCORES = {"P0": "9.5", "P1": "8.0", "P2": "5.5", "P3": "2.0"}
"""`security-severity`: critical, high, medium, low as the host bins them."""


def render(report: ReviewReport, _root: str = "") -> str:
    """One run. Where not all findings fit, the gravest do, and a notification says how many do not."""
    shown = ordered(report)[:RESULTS]
    while True:
        text = dumped(_log(report, shown))
        if not shown or len(gzip.compress(text.encode(), 6)) <= GZIPPED:
            return text
        shown = shown[: len(shown) // 2]


def _log(report: ReviewReport, shown: list[ReviewFinding]) -> dict[str, Any]:
    missing = len(report.findings) - len(shown)
    told = [headline(report), *notes(report), *([f"{missing} finding(s) do not fit here"] if missing else [])]
    judged = report.verdict in {"pass", "fail"}
    ended = {
        "executionSuccessful": judged,
        "exitCode": report.exit,
        "exitCodeDescription": told[0],
        "toolExecutionNotifications": [
            {"level": "note" if judged else "error", "message": {"text": _plain(one)}} for one in told
        ],
    }
    rules = {_rule(one): one for one in shown}
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": {"name": "agent-harness", "rules": [_described(*rule) for rule in rules.items()]}},
        "automationDetails": {"id": "agent-harness/review/"},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "invocations": [ended],
        "results": [_result(one, list(rules).index(_rule(one)), seen) for one in shown],
        "properties": {name: getattr(report, name) for name in ("base", "head", "run", "verdict", "exit")},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(one: ReviewFinding) -> str:
    """Stable, and one of few: what kind it is; for security also how grave, since the score is the rule's."""
    kind = re.sub(r"[^a-z0-9]+", "-", one.kind[:40].lower()).strip("-") or "finding"
    return f"{kind}-{one.severity.lower()}" if kind == "security" else kind


def _described(name: str, one: ReviewFinding) -> dict[str, Any]:
    security = {"tags": ["security"], "security-severity": SCORES.get(one.severity, "2.0")}
    text = f"Review finding: {name}"
    rule = {"id": name, "name": name, "shortDescription": {"text": text}, "help": {"text": text}}
    return rule | ({"properties": security} if name.startswith("security-") else {})


def _result(one: ReviewFinding, index: int, seen: Counter[str]) -> dict[str, Any]:
    seen[one.fingerprint] += 1
    mark = f"{flat(one.fingerprint)}:{seen[one.fingerprint]}"
    uri = quote(raw(one.path).lstrip(b"/"))
    where: dict[str, Any] = {"artifactLocation": {"uri": uri, "uriBaseId": ROOT}}
    if at := lines(one):
        where["region"] = {"startLine": at[0], "endLine": at[1]}
    result = {
        "ruleId": _rule(one),
        "ruleIndex": index,
        "level": level(one),
        "message": {"text": _plain(f"{one.severity} {flat(one.title)} ({standing(one)})\n\n{clean(one.body)}")},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {"agentHarness/v1": mark, "primaryLocationLineHash": mark},
        "properties": {"severity": one.severity, "proof": one.proof, "side": one.side},
    }
    waived = [{"kind": "external", "justification": _plain(flat(one.waiver))}]
    return result | ({"suppressions": waived} if one.disposition is Disposition.WAIVED else {})


def _plain(text: str) -> str:
    """SARIF reads `[text](target)` as a link; brackets that are meant as such are escaped."""
    return re.sub(r"([\\\[\]])", r"\\\1", text)
