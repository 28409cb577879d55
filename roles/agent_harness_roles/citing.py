"""Citations: each names one thing that code can follow, and what cannot be followed goes back. Facts, from the core:

`read`     a path's bytes in the commit that was studied, None where there is no such file
`absent`   whether a text stands in no file of it
`commit`   the whole id and the subject of a commit in its history, "" where there is none
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_harness.types import JSON
from agent_harness.types.text import clean, locate
from agent_harness_roles.evidence import Evidence

_SHOWN = 80
Facts = Mapping[str, Any]
IN_TREE = ("quote", "test", "commit")
"""Forms that point into the repository itself; the others point at what a command of the run printed."""


def followed(where: str, cites: Sequence[JSON], facts: Facts, evidence: Evidence) -> tuple[list[str], list[JSON]]:
    """What is wrong with citations, for the model; and the citations, each with `shown`: what it led to, for people."""
    problems: list[str] = []
    found: list[JSON] = []
    for number, one in enumerate(cites, 1):
        try:
            found.append({**one, "shown": _shown(one, facts, evidence)})
        except LookupError as fault:
            problems.append(f"{where}, citation {number} ({clean(one['says'])[:60]}): {fault}")
    return problems, found


def _shown(one: JSON, facts: Facts, evidence: Evidence) -> str:
    forms = [name for name in _FORMS if name in one]
    if len(forms) != 1 or bool(one.get("path")) != (forms[0] in {"quote", "test"}):
        known = "path with quote, path with test, commit, event with text, event with searched"
        raise LookupError(f"cite exactly one of: {known}")
    return _FORMS[forms[0]](one, facts, evidence)


def _quote(one: JSON, facts: Facts, _: Evidence) -> str:
    data = _read(one["path"], facts)
    try:
        first, _last = locate(data, one["quote"])
    except LookupError as fault:
        raise LookupError(f"its quote of {one['path']} {fault}") from fault
    return f"{one['path']}:{first} {' '.join(clean(one['quote']).split())!r}"


def _test(one: JSON, facts: Facts, _: Evidence) -> str:
    text = _read(one["path"], facts).decode("utf-8", "replace")
    # a comment that names a test is none; what a test looks like is known of Python alone
    before = r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+" if one["path"].endswith(".py") else r"(?<!\w)"
    for name in one["test"].partition("[")[0].split("::"):
        if not name or not re.search(rf"{before}{re.escape(name)}(?!\w)", text, re.MULTILINE):
            raise LookupError(f"there is no test {name!r} in {one['path']}")
    return f"{one['path']}: {one['test']}"


def _read(path: str, facts: Facts) -> bytes:
    data: bytes | None = facts["read"](path)
    if data is None:
        raise LookupError(f"there is no file {path} in the repository (paths are relative to it)")
    return data


def _commit(one: JSON, facts: Facts, _: Evidence) -> str:
    found: str = facts["commit"](one["commit"])
    if not found:
        raise LookupError(f"{one['commit']} is no commit in the history of what you study; give an id of `git log`")
    return f"commit {found}"


def _text(one: JSON, _: Facts, evidence: Evidence) -> str:
    shown = evidence.at(one.get("event", 0))
    text = clean(one["text"]).strip()
    if not one.get("event") or shown is None:
        raise LookupError(f"there is no event {one.get('event')} in this run (the last is {len(evidence.commands)})")
    if not text or text not in shown.output:
        raise LookupError(f"event {one['event']} does not show {text[:80]!r}")
    if text in shown.command or evidence.own(one["event"], text):
        raise LookupError(f"event {one['event']} was told {text[:80]!r} by a command of yours, so it shows nothing")
    return f"event {shown.seq}, `{_cut(shown.command)}`: {' '.join(text.split())!r}"


def _searched(one: JSON, facts: Facts, evidence: Evidence) -> str:
    """A search that failed finds nothing either: what stands in no file is missing, and what does, has to have been
    searched for by a command that printed nothing at all."""
    text, shown = one["searched"], evidence.at(one.get("event", 0))
    if not one.get("event") or shown is None or not evidence.searched([one["event"]], text):
        raise LookupError("that something is missing needs an event that searched for `searched` (rg, grep) in vain")
    if facts["absent"](text):
        return f"event {shown.seq}, `{_cut(shown.command)}`: {text!r} stands nowhere"
    if shown.output.strip():
        raise LookupError(f"{text!r} stands elsewhere in the repository; search only where it is missing, for it alone")
    return f"event {shown.seq}, `{_cut(shown.command)}`: {text!r} was not found there"


def _cut(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."


_FORMS: dict[str, Callable[[JSON, Facts, Evidence], str]] = {
    "quote": _quote,
    "test": _test,
    "commit": _commit,
    "text": _text,
    "searched": _searched,
}
