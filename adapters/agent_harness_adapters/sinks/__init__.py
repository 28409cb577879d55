"""Where a review goes: one file per format, each a pure function `render(report, root)` of the one report.

Titles, bodies, quotes and paths come from a model or a repository, so each format escapes them for itself; what all
of them share stands here. What a finding is worth is taken from `proof`, which code set, never from its words.
"""

import json
import re
from typing import Any

from agent_harness.types import Disposition, Proof, ReviewFinding, ReviewReport, Support

TEXT, LINE = 4_000, 300
"""Most characters of a text, and of what stands on one line. Only JSON has everything."""
NOTES = 20


def clean(text: str, limit: int = TEXT) -> str:
    """A text that steers nothing: its only control characters are line ends and tabs; cut with a mark."""
    kept = text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
    return re.sub(r"[^\n\t -~]", lambda c: c[0] if c[0].isprintable() else ascii(c[0])[1:-1], kept)


def flat(text: str, limit: int = LINE) -> str:
    """A text on one line."""
    return clean(" ".join(text[: limit * 8].split()), limit)


def raw(path: str) -> bytes:
    """A path's bytes in the repository, as far as it has any."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return path.encode("utf-8", "replace")


def wire(path: str) -> str:
    """A path for a machine: as it is, only what is no Unicode is replaced."""
    return raw(path).decode("utf-8", "replace")


def dumped(data: object) -> str:
    """JSON in ASCII, which every stream takes, without the half characters that other readers refuse."""
    whole = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
    return json.dumps(json.loads(whole), indent=2)


def blocks(finding: ReviewFinding) -> bool:
    """Whether a finding fails the change. Nothing unverified, waived or demoted does, whatever else is said of it."""
    return finding.blocking and finding.counts


def level(finding: ReviewFinding) -> str:
    """`error` where it blocks; else `warning`, or `note` for the small, the waived and the unverified."""
    if blocks(finding):
        return "error"
    small = finding.severity == "P3" or finding.proof is Proof.UNVERIFIED or finding.disposition is Disposition.WAIVED
    return "note" if small else "warning"


def standing(finding: ReviewFinding) -> str:
    """What a finding is worth, in words."""
    told: list[str] = [finding.proof]
    if finding.proof is Proof.UNVERIFIED:
        told[0] = "unverified: no evidence holds it up, it blocks nothing"
    told += ["blocks"] if blocks(finding) else []
    told += [f"does not block: {flat(finding.demoted)}"] if finding.demoted else []
    told += [f"waived: {flat(finding.waiver)}"] if finding.disposition is Disposition.WAIVED else []
    told += ["known from an earlier round"] if finding.disposition is Disposition.KNOWN else []
    return ", ".join(told)


def lines(finding: ReviewFinding) -> tuple[int, int] | None:
    """First and last line in head; None where it is about base, whose lines head does not have."""
    at = finding.side != "base" and finding.line > 0
    return (finding.line, max(finding.line, finding.end_line)) if at else None


def place(finding: ReviewFinding) -> str:
    """Path and line for people."""
    path = clean(finding.path.replace("\n", "\\n"), LINE)
    return f"{path}:{finding.line}" + (" (of the base)" if finding.side == "base" else "")


def ordered(report: ReviewReport) -> list[ReviewFinding]:
    """The findings, those that block first, then by severity and place."""
    return sorted(report.findings, key=lambda f: (not blocks(f), level(f) == "note", f.severity, f.path, f.line))


def headline(report: ReviewReport) -> str:
    """How it ended, on one line, with the reason."""
    return f"{report.verdict} (exit {report.exit}): {flat(report.reason or report.summary or 'no reason was given')}"


def _by_story(one: ReviewFinding) -> bool:
    return one.blocking and one.kind == "unsupported_claim"


def notes(report: ReviewReport) -> list[str]:
    """What else a reader has to know before believing the verdict."""
    told = ["the stored verdict of the same inputs: no model was asked"] if report.remembered else []
    if report.blind == "pass" and report.verdict == "fail" and any(map(_by_story, report.findings)):
        told.append(f"the change's story altered the verdict: it was {report.blind} before the story was told")
    if report.unheard and report.verdict == "fail":
        told.append(f"what the change says of itself was not judged: {report.unheard}")
    if report.unseen:
        told.append(f"{len(report.unseen)} of {report.hunks} changed hunks were not seen: {', '.join(report.unseen)}")
    if report.unread:
        told.append(f"{len(report.unread)} changed hunks need not be read (review.unread): {', '.join(report.unread)}")
    claims = [claim for claim in report.claims if claim.support is not Support.SUPPORTED]
    told += [f"claim {claim.support.replace('_', ' ')}: {claim.statement} ({claim.why})" for claim in claims]
    more = [f"{len(told) - NOTES} more notes are in the JSON report"] if len(told) > NOTES else []
    return [flat(one) for one in [*told[:NOTES], *more]]


def counted(report: ReviewReport) -> dict[str, Any]:
    """Numbers that a caller may act upon."""
    return {"findings": len(report.findings), "blocking": sum(map(blocks, report.findings))}
