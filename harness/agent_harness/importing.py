"""What people have elsewhere as items of the queue: plans of ours, Markdown checklists, lists of GitHub issues.

Every line either becomes part of an item or is named in what was skipped. What is imported has a key made of where it
is from and its id there, so that importing it again changes nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agent_harness.errors import NothingToDo, UsageError
from agent_harness.plans import HEADING, MARK, Draft, Ids, Plan, PlanItem, Skipped, lines_of, one_line, opaque, read
from agent_harness.queue.adding import check_cycles
from agent_harness.types import Check, Deliverable, NewItem

LIMIT = 16 << 20
"""Bytes of a file."""
READABLE = "give a plan, a checklist (`- [ ] title`), or issues as JSON"
MOST_ITEMS, MOST_LINES = 2000, 200_000
LONGEST_BRIEF, LONGEST_TITLE = 256 << 10, 1000
"""Characters: they go into prompts."""
_BOX = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+\[([ xX])\](?:\s+(.*))?")
_NEARLY = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+\[[^\] xX]?\]\s+\S.*")
_AFTER = re.compile(r"\b(?:depends on|blocked by)[:\s]+(#\d{1,9}(?:(?:,| and|,? &)? *#\d{1,9})*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """What a file holds: its items, and what of it is in none of them."""

    plan: Plan
    skipped: Sequence[Skipped]
    ids: str = ""
    """What is put before an item's id to make it an id of the queue."""


def parse(text: str) -> Source:
    """Read any of the formats. Raises UsageError (no items can be read from it, too much), NothingToDo (no items)."""
    start = text.lstrip("\ufeff \t\r\n")
    if (lines := text.count("\n")) > MOST_LINES:
        raise UsageError(f"it has {lines} lines", why=f"{MOST_LINES} is the most", next="split it")
    if start.startswith(MARK):
        found = Source(*read(text))
    else:
        found = _listed(start) if start[:1] in {"[", "{"} else _checklist(text)
    items = found.plan.items
    if not items:
        why = "; ".join(f"line {one.line}: {one.why}" if one.line else one.why for one in found.skipped[:3])
        raise NothingToDo("it holds no item", why=why, next=READABLE)
    if len(items) > MOST_ITEMS:
        raise UsageError(f"it holds {len(items)} items", why=f"{MOST_ITEMS} is the most", next="split it")
    for item in items:
        for what, told, most in ("title", item.title, LONGEST_TITLE), ("brief", item.brief, LONGEST_BRIEF):
            if len(told) > most:
                raise UsageError(f"the item {item.id} has a {what} of {len(told)} characters", next="say it shorter")
    return found


def new_items(
    source: Source, name: str, *, done: Collection[str], taken: Collection[str], project: Sequence[Check] = ()
) -> list[NewItem]:
    """The items as they are queued. `name` is the file's, `done` names those that a person says are done, `taken` are
    ids that the queue has; checks of the file come beside those of the `project`, never in their place. Raises
    UsageError for an id in `done` that is not there, and for items that would wait for each other."""
    items = [(item, key(item, item.id, name)) for item in source.plan.items]
    names = Counter(one for item, whole in items for one in (item.id, whole))
    if strange := sorted(one for one in done if names[one] != 1):
        raise UsageError(f"{name} has no item {strange[0]!r}, or several", next="name one by its id or key there")
    over = {whole for item, whole in items if item.done or {item.id, whole}.intersection(done)}
    needs = {w: [key(item, one, name) for one in item.depends_on] for item, w in items if w not in over}
    check_cycles(needs)
    used, new = set(taken), []
    for item, whole in items:
        wanted = f"{source.ids}{item.id}"
        new.append(
            NewItem(
                title=item.title,
                brief=brief(item, source.plan),
                checks=tuple(dict.fromkeys((*project, *item.checks))) if item.checks else None,
                key=whole,
                allow_paths=item.allow,
                id=None if wanted in used else wanted,
                deliverable=item.deliverable,
                needs=tuple(needs.get(whole, ())),
                done=whole in over,
            )
        )
        used.add(wanted)
    return new


def key(item: PlanItem, id: str, name: str) -> str:
    """The key of an item (by its id) that comes from where this one does."""
    return f"{item.origin or name}#{id}"


def brief(item: PlanItem, plan: Plan) -> str:
    """All that an item says, as the task's text."""
    parts = {
        "It is done when": item.acceptance,
        "Paths it is about": item.paths,
        "Risk": (item.risk,) * bool(item.risk),
        "What is known": item.evidence,
        "Assumed": plan.assumptions,
    }
    lists = ["\n".join((f"{name}:", *(f"- {one}" for one in entries))) for name, entries in parts.items() if entries]
    return "\n\n".join(one for one in (item.brief, *lists) if one)


# --- checklists ---------------------------------------------------------------------------------------------


class _Checklist:
    """Takes the lines of a Markdown file one by one. A box is an item; what is beneath it (by indent, or until a
    heading as high as the one above it) is its brief; boxes inside it are items that it depends on."""

    def __init__(self) -> None:
        self.items: list[tuple[Draft, list[int]]] = []
        self.untaken: dict[int, Skipped] = {}
        self._open: list[tuple[int, int]] = []  # indents, and positions in `items`
        self._trail: list[tuple[int, int, str]] = []  # the headings above: level, line, text

    def take(self, number: int, line: str, hidden: bool) -> None:
        """Take one line."""
        heading = None if hidden else HEADING.fullmatch(line)
        box = None if hidden else _BOX.fullmatch(line)
        if heading and not (self._open and len(heading[1]) > (self._trail[-1][0] if self._trail else 0)):
            self._open = []
            self._trail = [one for one in self._trail if one[0] < len(heading[1])]
            self._trail.append((len(heading[1]), number, one_line(heading[2])))
            self.untaken[number] = Skipped(number, "no item stands below this heading", line)
        elif box and (title := one_line(box[3] or "")):
            self._box(len(box[1]), Draft("", title, box[2] != " ", number))
        elif not hidden and _NEARLY.fullmatch(line):
            self.untaken[number] = Skipped(number, "an item's box is written [ ], or [x] where it is done", line)
        elif not self._open:
            if line.strip():
                self.untaken[number] = Skipped(number, "it belongs to no item: there is none above it", line)
        else:
            indent = len(line) - len(line.lstrip())
            inside = [at for left, at in self._open if left < indent]
            draft = self.items[inside[-1] if inside else self._open[0][1]][0]
            draft.lines.append(line)

    def _box(self, indent: int, draft: Draft) -> None:
        while self._open and self._open[-1][0] >= indent:
            self._open.pop()
        if self._open:
            parent, needs = self.items[self._open[-1][1]]
            needs.append(len(self.items))
            draft.lines.append(f"Part of: {parent.title}")
        elif self._trail:
            draft.lines.append(f"From: {' / '.join(text for _, _, text in self._trail)}")
            for _, line, _ in self._trail:
                self.untaken.pop(line, None)
        if draft.lines:
            draft.lines.append("")
        self._open.append((indent, len(self.items)))
        self.items.append((draft, []))


def _checklist(text: str) -> Source:
    lines, odd = lines_of(text)
    reader, ids = _Checklist(), Ids()
    for number, (line, hidden) in enumerate(zip(lines, opaque(lines)[0], strict=True), 1):
        reader.take(number, line.expandtabs(4), hidden)
    names = [ids.of(draft) for draft, _ in reader.items]
    items = tuple(
        PlanItem(name, draft.title, draft.brief, draft.done, depends_on=tuple(names[one] for one in needs))
        for name, (draft, needs) in zip(names, reader.items, strict=True)
    )
    return Source(Plan("", items=items), sorted([*odd, *reader.untaken.values()], key=lambda one: one.line))


# --- GitHub issues ------------------------------------------------------------------------------------------


def _listed(text: str) -> Source:
    """The JSON values in a text, one after the other as paging tools print them; lists in lists flattened. What is no
    JSON may still be a checklist, of which a line begins like that."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found.append(value)
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, RecursionError) as error:
        source = _checklist(text)
        if not source.plan.items:
            raise UsageError("it is not whole as JSON", why=str(error), next=READABLE) from error
        return source
    for _ in range(3):
        found = [one for value in found for one in (value if isinstance(value, list) else [value])]
    return _issues(found)


def _issues(values: Sequence[Any]) -> Source:
    items: dict[str, PlanItem] = {}
    skipped: list[Skipped] = []
    for at, value in enumerate(values, 1):
        name, item, why = _issue(value, f"entry {at}")
        if item and items.setdefault(item.origin + item.id, item) is not item:
            why = "it stands in the list twice"
        if why:
            skipped.append(Skipped(0, f"{name}: {why}", ""))
    return Source(Plan("", items=tuple(items.values())), skipped, "issue-")


def _issue(value: Any, entry: str) -> tuple[str, PlanItem | None, str]:
    """An issue's name, the issue where it is imported, and why not, or what of it was changed."""
    number = value.get("number") if isinstance(value, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(value.get("title"), str):
        return entry, None, "it is no issue: it has no number and title"
    url = str(value.get("html_url") or value.get("url") or "")
    (title, odd), (body, also) = _text(value["title"]), _text(value.get("body"))
    name, state = f"#{number} {one_line(title)}", str(value.get("state") or "").lower()
    reason = str(value.get("state_reason") or value.get("stateReason") or "").lower()
    if "pull_request" in value or "/pull/" in url:
        return name, None, "it is a pull request"
    if not title.strip():
        return name, None, "its title is empty"
    if state == "closed" and reason in {"not_planned", "duplicate"}:
        return name, None, f"it was closed as {reason.replace('_', ' ')}"
    repo = re.search(r"([\w.-]+/[\w.-]+)/(?:-/)?(?:issues|pull)/\d+$", url)
    origin = repo[1] if repo else url.removesuffix(str(number)).rstrip("/#-")
    after = dict.fromkeys(str(int(one)) for one in re.findall(r"\d+", " ".join(_AFTER.findall(body))))
    needs = tuple(one for one in after if one != str(number))
    text = "\n\n".join(one for one in (body.strip(), f"From: {url}" * bool(url)) if one)
    item = PlanItem(str(number), one_line(title), text, state == "closed", depends_on=needs, origin=origin)
    return name, item, "control characters in it were replaced" * (odd or also)


def _text(value: Any) -> tuple[str, bool]:
    """A text without control characters, and whether it had any."""
    lines, odd = lines_of(str(value or ""))
    return "\n".join(lines), bool(odd)


def need_checks(items: Sequence[NewItem], way_out: str) -> None:
    """Raises UsageError where nothing could judge an item of a project that has no checks."""
    changes = [one for one in items if not one.done and one.deliverable is Deliverable.CHANGE and one.checks is None]
    if changes:
        raise UsageError(
            f"the item {changes[0].title!r} has no checks and neither has the project",
            why="nothing could tell whether a change is right",
            next=f"{way_out}, or set project.checks in harness.toml",
        )
