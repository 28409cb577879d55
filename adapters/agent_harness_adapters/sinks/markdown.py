"""A review as a comment on a pull or merge request.

Whatever a model or a repository wrote stands in a code span or a fence that its own backticks cannot close: there it
is no markup, no mention, no reference and no link.
"""

import re

from agent_harness.types import ReviewFinding, ReviewReport
from agent_harness_adapters.sinks import blocks, clean, flat, headline, notes, ordered, place, standing

MARK = "<!-- agent-harness review -->"
"""First line, by which an earlier comment is found again."""
LIMIT = 65_536
"""Bytes of a comment; the host counts characters, which are never more."""
SPARE = 256


def render(report: ReviewReport, _root: str = "", *, limit: int = LIMIT) -> str:
    """The comment: as many findings as fit, the gravest first, and how many did not."""
    told = [MARK, f"### Review: {report.verdict}", span(headline(report)), *(f"- {span(one)}" for one in notes(report))]
    told.append(f"`{report.base[:12]}..{report.head[:12]}`, {len(report.findings)} finding(s).")
    room = limit - SPARE - sum(len(one.encode()) + 2 for one in told)
    findings = ordered(report)
    for number, one in enumerate(findings):
        part = _finding(one)
        room -= len(part.encode()) + 2
        if room < 0:
            told.append(f"{len(findings) - number} more finding(s) do not fit here; the JSON report has them all.")
            break
        told.append(part)
    return "\n\n".join(told) + "\n"


def _finding(one: ReviewFinding) -> str:
    parts = [span(f"{one.severity} {one.title}"), f"{span(place(one))} {span(standing(one))}", fence(one.body)]
    parts += [fence(one.quote)] if one.quote else []
    if blocks(one):
        return "\n\n".join([f"#### {parts[0]}", *parts[1:]])
    return "\n\n".join(["<details><summary>Does not block</summary>", *parts, "</details>"])


def span(text: str) -> str:
    """Any text as a code span."""
    return _ticked(flat(text) or "-", 1, " ")


def fence(text: str) -> str:
    """Any text as a block of code."""
    return _ticked(clean(text), 3, "\n")


def _ticked(text: str, least: int, gap: str) -> str:
    ticks = "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{ticks}{'text' if gap == chr(10) else ''}{gap}{text}{gap}{ticks}"
