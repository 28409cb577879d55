"""Plans as Markdown that a person can edit: `write` and `read` are each other's inverse on tidy plans.

What stands in a code fence or an HTML comment is prose, whatever it looks like. In prose, a line that would be a part
of the plan is written with a backslash before it, as Markdown has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_harness.types import Check, CheckKind, Deliverable

MARK = "<!-- agent-harness plan 1 -->"
"""First line of a file that is read as a plan of ours, and not as anybody's checklist."""

LISTS = {"Assumptions": "assumptions", "Open questions": "questions", "Evidence": "evidence"}
NAMES = ("Acceptance", "Checks", "Depends on", "Risk", "Paths", "Allow", "Evidence", "Deliverable")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_STRUCTURE = re.compile(rf"^(\s*)(\\*)(?=#{{1,3}}\s|####\s+(?:{'|'.join(NAMES)})\s*$|`{{3}}|~{{3}}|<!--)")
HEADING = re.compile(r"(#{1,6})\s+(.*)")
_ITEM = re.compile(r"### \[([ xX])\]\s+(?:([a-z0-9][a-z0-9._-]{0,63}):\s+)?(.*\S)")
_ITEM_TOLD = "an item begins with `### [ ] id: title`, below `## Items`"
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item of a plan. `acceptance` to `evidence` are lines of text. `origin` is where it is from, where that is
    not the file it was read from."""

    id: str
    title: str
    brief: str = ""
    done: bool = False
    deliverable: Deliverable = Deliverable.CHANGE
    acceptance: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    depends_on: tuple[str, ...] = ()
    risk: str = ""
    paths: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """Globs of protected paths that it may change: for people to fill in, never for a model."""
    evidence: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be reached (one line), what a reader should know first, by which items, and what that rests on."""

    goal: str
    context: str = ""
    items: tuple[PlanItem, ...] = ()
    assumptions: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line (0: none in particular) that was not taken, or not as it stood, and why."""

    line: int
    why: str
    text: str


@dataclass(slots=True)
class Draft:
    """An item while its lines come in."""

    id: str
    title: str
    done: bool
    line: int
    lines: list[str] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)

    @property
    def brief(self) -> str:
        """Its prose."""
        return "\n".join(self.lines).strip()


def lines_of(text: str) -> tuple[list[str], list[Skipped]]:
    """The lines of a file that anybody may have written, without characters that steer a terminal or a reader."""
    found = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    why = "control characters in it were replaced"
    odd = [Skipped(number, why, tidy(line)) for number, line in enumerate(found, 1) if _CONTROL.search(line)]
    return [tidy(line) for line in found], odd


def tidy(text: str) -> str:
    """The text with U+FFFD for each control character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def opaque(lines: Sequence[str]) -> tuple[list[bool], int]:
    """Which lines belong to code fences and HTML comments; and where one begins that is never closed, else -1."""
    inside, start, closes = [], -1, ""
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line) if "```" in line or "~~~" in line else None
        inside.append(True)
        if closes == "-->":
            closes = "" if "-->" in line else closes
        elif closes:
            closes = "" if fence and not fence[2].strip() and fence[1].startswith(closes) else closes
        elif line.lstrip().startswith("<!--"):
            start, closes = number, "" if "-->" in line else "-->"
        elif fence and not (fence[1][0] == "`" and "`" in fence[2]):
            start, closes = number, fence[1]
        else:
            inside[-1] = False
    return inside, start if closes else -1


# --- writing ------------------------------------------------------------------------------------------------


def write(plan: Plan) -> str:
    """A plan as Markdown."""
    out = [MARK, "", f"# {plan.goal}", *_prose(plan.context)]
    for name, attribute in LISTS.items():
        out += _list(f"## {name}", getattr(plan, attribute))
    out += ["", "## Items"]
    for item in plan.items:
        out += ["", f"### [{'x' if item.done else ' '}] {item.id}: {item.title}", *_prose(item.brief)]
        for name in NAMES:
            attribute, shown, _ = FIELDS[name]
            out += _list(f"#### {name}", shown(getattr(item, attribute)))
    return "\n".join(out) + "\n"


def _prose(text: str) -> list[str]:
    lines = text.split("\n") if text else []
    unclosed: set[int] = set()
    while (start := opaque(lines)[1]) >= 0:
        lines[start] = _STRUCTURE.sub(r"\1\\\2", lines[start])
        unclosed.add(start)
    for number, inside in enumerate(opaque(lines)[0]):
        if not inside and number not in unclosed:
            lines[number] = _STRUCTURE.sub(r"\1\\\2", lines[number])
    return ["", *lines] if lines else []


def _list(heading: str, entries: Iterable[str]) -> list[str]:
    lines = ["- " + entry.replace("\n", " ") for entry in entries]  # a second line could be any part of a plan
    return ["", heading, "", *lines] if lines else []


def _span(text: str) -> str:
    """Text as inline code."""
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


# --- reading ------------------------------------------------------------------------------------------------


def read(text: str) -> tuple[Plan, list[Skipped]]:
    """A plan of ours (its first line is the mark), and the lines that are no part of it."""
    lines, skipped = lines_of(text)
    reader, start = _Reader(), next(number for number, line in enumerate(lines, 1) if line.strip())
    for number, (line, hidden) in enumerate(zip(lines, opaque(lines)[0], strict=True), 1):
        reader.number = number
        if number > start and (why := reader.take(line, hidden)) and line.strip():
            skipped.append(Skipped(number, why, line))
    ids = Ids()
    items = tuple(_item(draft, ids, skipped) for draft in reader.items)
    lists = {attribute: tuple(reader.lists.get(name, ())) for name, attribute in LISTS.items()}
    plan = Plan(reader.goal, "\n".join(reader.context).strip(), items, **lists)
    return plan, sorted(skipped, key=lambda one: one.line)


class _Reader:
    """Takes the lines of a plan one by one."""

    def __init__(self) -> None:
        self.number, self.goal = 0, ""
        self.context: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self.items: list[Draft] = []
        self._prose: list[str] | None = None
        self._entries: list[str] | None = None
        self._why = "it stands before the plan's title"
        self._in_items = self._blank = False

    def take(self, line: str, hidden: bool) -> str:
        """Take a line; else why not."""
        heading = None if hidden else HEADING.fullmatch(line)
        if heading and (taken := self._heading(line, len(heading[1]), heading[2].strip())) is not None:
            return taken
        if heading:
            self._entries = None
        if self._entries is not None and not hidden and self._entry(line):
            return ""
        self._entries = None
        if self._prose is None:
            return self._why
        self._prose.append(line if hidden else _STRUCTURE.sub(lambda found: found[1] + found[2][1:], line))
        return ""

    def _heading(self, line: str, level: int, name: str) -> str | None:
        """What a heading begins; None where it is prose."""
        if level == 1:
            self._begin(None if self.goal else self.context, "a plan has one title" if self.goal else "")
            self.goal = self.goal or one_line(name)
        elif level == 2:
            self._in_items = name == "Items"
            known = name in LISTS
            told = "only list entries are taken here" if known else "no part of a plan has this heading"
            self._begin(None, _ITEM_TOLD if self._in_items else told)
            self._entries = self.lists.setdefault(name, []) if known else None
            return "" if known or self._in_items else told
        elif level == 3:
            found = _ITEM.fullmatch(line.rstrip()) if self._in_items else None
            self._begin(None, _ITEM_TOLD)
            if found:
                self.items.append(Draft(found[2] or "", one_line(found[3]), found[1] != " ", self.number))
                self._begin(self.items[-1].lines, "")
        elif level == 4 and self.items and self._prose is self.items[-1].lines and name in NAMES:
            self._entries = self.items[-1].fields.setdefault(name, [])
            self._blank = False
            return ""
        else:
            return None
        return self._why

    def _begin(self, prose: list[str] | None, why: str) -> None:
        self._prose, self._entries, self._why, self._blank = prose, None, why, False

    def _entry(self, line: str) -> bool:
        """Whether a line is an entry of the list at hand, or goes on with one."""
        entries = self._entries
        assert entries is not None
        if not line.strip():
            self._blank = bool(entries)
            return True
        if found := _BULLET.fullmatch(line):
            entries.append(found[1].strip())
        elif entries and (line[0].isspace() or not self._blank):
            entries[-1] = one_line(f"{entries[-1]} {line}")
        else:
            return False
        self._blank = False
        return True


def _item(draft: Draft, ids: Ids, skipped: list[Skipped]) -> PlanItem:
    """An item of its lines. What is not taken as it stands is added to `skipped`."""
    id, word = ids.of(draft), draft.fields.get("Deliverable", [])
    if draft.id and id != draft.id:
        skipped.append(Skipped(draft.line, f"an earlier item has this id: it is taken as {id}", draft.title))
    if word and word[0] not in set(Deliverable):
        skipped.append(Skipped(draft.line, "an item is delivered as `change` or `answer`", word[0]))
    values = {attribute: taken(draft.fields.get(name, [])) for name, (attribute, _, taken) in FIELDS.items()}
    return PlanItem(id, draft.title, draft.brief, draft.done, **values)


def _check(entry: str) -> Check:
    kind, _, command = entry.partition(": ")
    known = kind in set(CheckKind)
    return Check(_unspan(command if known else entry).strip(), CheckKind(kind) if known else CheckKind.TESTS)


def _unspan(text: str) -> str:
    ticks = len(text) - len(text.lstrip("`"))
    if not ticks or len(text) < 2 * ticks + 1 or not text.endswith("`" * ticks):
        return text
    inner = text[ticks:-ticks]
    return inner[1:-1] if inner[0] == inner[-1] == " " and inner.strip() else inner


_Field = tuple[str, Callable[[Any], list[str]], Callable[[list[str]], Any]]
_SPANS = (lambda texts: list(map(_span, texts)), lambda lines: tuple(map(_unspan, lines)))
FIELDS: dict[str, _Field] = {
    "Acceptance": ("acceptance", list, tuple),
    "Checks": (
        "checks",
        lambda checks: [f"{check.kind}: {_span(check.command)}" for check in checks],
        lambda lines: tuple(map(_check, lines)),
    ),
    "Depends on": ("depends_on", list, lambda lines: tuple(re.findall(r"[^\s,`]+", " ".join(lines)))),
    "Risk": ("risk", lambda text: [text] * bool(text), " ".join),
    "Paths": ("paths", *_SPANS),
    "Allow": ("allow", *_SPANS),
    "Evidence": ("evidence", list, tuple),
    "Deliverable": (
        "deliverable",
        lambda value: [str(value)] * (value is not Deliverable.CHANGE),
        lambda lines: Deliverable.ANSWER if lines == [Deliverable.ANSWER] else Deliverable.CHANGE,
    ),
}
"""An item's lists: what of it they are, as they are written, and as they are read."""


class Ids:
    """Gives every item an id of its own: the one it has, else its title's words, numbered where they come again."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, draft: Draft) -> str:
        """An id that no earlier one has."""
        wanted = draft.id or re.sub(r"[^a-z0-9]+", "-", draft.title.lower())[:48].strip("-") or "item"
        made = wanted
        while made in self._seen:
            self._seen[wanted] += 1
            made = f"{wanted}-{self._seen[wanted]}"
        self._seen[made] = 1
        return made
