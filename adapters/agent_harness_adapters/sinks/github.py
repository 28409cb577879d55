"""A review for GitHub Actions: annotations on stdout, the step's summary, the step's outputs."""

import secrets
from collections import Counter

from agent_harness.types import ReviewReport
from agent_harness_adapters.sinks import clean, counted, flat, headline, level, lines, markdown, ordered, standing, wire

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
PER_LEVEL = 10
"""Annotations of one level that the host shows of a step; the verdict takes one."""
SUMMARY = 1_000_000
"""Bytes; the host takes 1 MiB of a step."""


def render(report: ReviewReport, root: str = "") -> dict[str, str]:
    """Texts by where they go: `""` is stdout, the others are the variables that name a file to append to."""
    return {
        "": commands(report),
        "GITHUB_STEP_SUMMARY": markdown.render(report, root, limit=SUMMARY),
        "GITHUB_OUTPUT": outputs(report),
    }


def commands(report: ReviewReport) -> str:
    """Workflow commands, one a line, the verdict first."""
    told, used, left = [], Counter({"error": 1, "notice": 1}), 0
    for one in ordered(report):
        name = COMMANDS[level(one)]
        if used[name] >= PER_LEVEL:
            left += 1
            continue
        used[name] += 1
        at = dict(zip(("line", "endLine"), lines(one) or (), strict=False))
        title = f"{one.severity} {flat(one.title, 120)}"
        told.append(_command(name, f"{standing(one)}\n{clean(one.body)}", file=wire(one.path), **at, title=title))
    more = f" ({left} more finding(s) are in the step's summary)" if left else ""
    first = "notice" if report.verdict == "pass" else "error"
    return "\n".join([_command(first, headline(report) + more, title=f"Review: {report.verdict}"), *told])


def outputs(report: ReviewReport) -> str:
    """The step's outputs, each closed by a word that no text can know."""
    end = f"end-{secrets.token_hex(16)}"
    values = {"verdict": report.verdict, "exit": report.exit, "reason": flat(report.reason), **counted(report)}
    return "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items())


def _command(name: str, text: str, **properties: object) -> str:
    told = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in properties.items())
    return f"::{name} {told}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
