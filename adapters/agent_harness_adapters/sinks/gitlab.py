"""A review as GitLab's code quality report. It has no place for a verdict: one that is no pass is its first entry."""

import hashlib
from collections import Counter

from agent_harness.types import ReviewReport
from agent_harness_adapters.sinks import blocks, clean, dumped, flat, headline, level, lines, ordered, standing, wire

SEVERITIES = {"P0": "blocker", "P1": "critical"}


def render(report: ReviewReport, _root: str = "") -> str:
    """A list of issues, each with a fingerprint of its own."""
    told = (
        [] if report.verdict == "pass" else [_issue("verdict", headline(report), report.verdict, severity="critical")]
    )
    seen: Counter[str] = Counter()
    for one in ordered(report):
        seen[one.fingerprint] += 1
        small = {"error": "major", "warning": "minor", "note": "info"}[level(one)]
        issue = _issue(
            flat(one.kind, 40) or "finding",
            f"{one.severity} {flat(one.title)} ({standing(one)})\n{clean(one.body)}",
            f"{one.fingerprint}:{seen[one.fingerprint]}",
            severity=SEVERITIES.get(one.severity, small) if blocks(one) else small,
        )
        told.append(issue | {"location": {"path": wire(one.path), "lines": {"begin": (lines(one) or (1,))[0]}}})
    return dumped(told)


def _issue(name: str, text: str, mark: str, *, severity: str) -> dict[str, object]:
    return {
        "type": "issue",
        "check_name": f"agent-harness/{name}",
        "description": text,
        "fingerprint": hashlib.sha256(f"{name}:{mark}".encode("utf-8", "replace")).hexdigest(),
        "severity": severity,
        "location": {"path": ".", "lines": {"begin": 1}},
    }
