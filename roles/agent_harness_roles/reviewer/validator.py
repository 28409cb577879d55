"""A verdict counts when code can confirm what it cites. Facts, from the review gate:

`changed`         the changed paths, as people see them
`diff_complete`   the reviewer was given the whole diff
`read_candidate`, `read_base`   a path's bytes on either side, None where there is no such file
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_harness.types import JSON
from agent_harness_roles.evidence import Evidence, Shown
from agent_harness_roles.observe import clean

_BLOCKING = {"P0", "P1"}
_FEWEST_WORDS = 3
_TELLING = 4  # characters a line needs to show that its file was printed

Read = Callable[[str], bytes | None]


def validate(submission: JSON, facts: Mapping[str, Any], evidence: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Problems, or the verdict with `line`, `end_line` and `blocking` of each finding set by code.

    A finding outside the changed files is kept, but never blocking (`demoted` says so)."""
    sides: dict[str, Read] = {"head": facts["read_candidate"], "base": facts["read_base"]}
    changed = set(facts["changed"])
    problems, findings = [], []
    for number, finding in enumerate(submission["findings"], 1):
        where = f"finding {number} ({finding['title']})"
        lines, problem = _locate(finding, sides[finding["side"]])
        if problem:
            problems.append(f"{where}: {problem}")
        wanted = finding.get("blocking", False) or finding["severity"] in _BLOCKING
        inside = finding["path"] in changed
        placed = {**finding, **lines, "blocking": wanted and inside}
        findings.append({**placed, "demoted": True} if wanted and not inside else placed)
    problems += _contradictions(submission["verdict"], findings)
    if len(set(submission["summary"].split())) < _FEWEST_WORDS:
        problems.append("summary: say in a sentence what the change does and why it may or may not be delivered")
    if not evidence.looked:
        problems.append("no command of this run succeeded: look at the changed files before you judge")
    if not facts["diff_complete"]:
        problems += _unseen(sorted(changed), sides, evidence)
    return problems, {**submission, "findings": findings}


def _locate(finding: JSON, read: Read) -> tuple[dict[str, int], str]:
    """The lines a finding's quote stands on, or why they cannot be told."""
    path, quote = finding["path"], clean(finding["quote"]).strip("\n")
    data = read(path)
    if data is None:
        other = (
            "paths are relative to the repository, such as src/app.py"
            if path.startswith("/")
            else "check path and side"
        )
        return {}, f"there is no file {path} in {finding['side']}; {other}"
    text = clean(data.decode("utf-8", "replace"))
    at = text.find(quote) if quote.strip() else -1
    if at < 0:
        return {}, f"its quote does not stand in {path}; copy it exactly, without diff signs or line numbers"
    if text.find(quote, at + 1) >= 0:
        return {}, f"its quote stands more than once in {path}; quote more of the text around it"
    line = text.count("\n", 0, at) + 1
    return {"line": line, "end_line": line + quote.count("\n")}, ""


def _contradictions(verdict: str, findings: list[dict[str, Any]]) -> list[str]:
    blocking = [finding["title"] for finding in findings if finding["blocking"]]
    if verdict == "pass" and blocking:
        return [f"verdict pass contradicts the blocking finding ({blocking[0]}): fail, or give it the severity it has"]
    if verdict == "fail" and not blocking:
        missing = "name what must be mended, quoting the changed line that causes it, or pass"
        return [f"verdict fail without a blocking finding in a changed file: {missing}"]
    return []


def _unseen(changed: list[str], sides: Mapping[str, Read], evidence: Evidence) -> list[str]:
    """The diff was cut: each changed path has to have been printed by a command of this run."""
    missing = [path for path in changed if not _shown(path, sides, evidence.commands)]
    return [f"the diff was cut and these changed files were not looked at yet: {', '.join(missing)}"] if missing else []


def _shown(path: str, sides: Mapping[str, Read], commands: list[Shown]) -> bool:
    data = sides["head"](path)
    if data is None:
        data = sides["base"](path) or b""
    lines = {line.strip() for line in clean(data.decode("utf-8", "replace")).split("\n")}
    telling = [line for line in lines if len(line) >= _TELLING]
    folder, _, name = path.rpartition("/")
    for shown in commands:
        named = path in shown.output or (name in shown.command and folder in shown.command)
        if shown.ok and named and (not telling or any(line in shown.output for line in telling)):
            return True
    return False
