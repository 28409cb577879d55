"""`queue`: what is to be done, what became of it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_harness.cli.events import event_line
from agent_harness.cli.opening import Db, Json, Sets, Text, Texts, group, opened, opt, readable, text_from
from agent_harness.cli.output import bounds, emit, line, plain, say, table, when
from agent_harness.errors import UsageError
from agent_harness.types import (
    JSON,
    Allowance,
    Check,
    CheckKind,
    Deliverable,
    Item,
    ItemState,
    Limits,
    NewItem,
    Spend,
    dollars,
)

if TYPE_CHECKING:
    from agent_harness.config.shape import Ceilings

app = group("Add, list, show, retry and cancel items.")

ALLOW = f"What the change may do all the same: {', '.join(Allowance)}. Repeatable."
STATE = f"Only items in this state: {', '.join(ItemState)}. Repeatable."
States = Annotated[list[ItemState] | None, opt("--state", metavar="STATE", help=STATE)]
Id = Annotated[str, typer.Argument(metavar="ID", help="The item's id, as `queue list` prints it.")]


@app.command()
def add(  # noqa: PLR0913 - one parameter per option
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is to be done, in one line.")],
    *,
    brief: Annotated[Text, opt(metavar="TEXT", help="The whole task.")] = None,
    brief_file: Annotated[Text, opt(metavar="FILE", help="The whole task from a file; - is stdin.")] = None,
    check: Annotated[Texts, opt(metavar="CMD", help="A test command, instead of the project's. Repeatable.")] = None,
    command: Annotated[Texts, opt(metavar="CMD", help="A command that must exit 0 (a linter). Repeatable.")] = None,
    usd: Annotated[Text, opt(metavar="USD", help="Most that the item may cost.")] = None,
    steps: Annotated[int | None, opt(min=1, help="Most model answers.")] = None,
    tokens: Annotated[int | None, opt(min=1, help="Most tokens, in and out.")] = None,
    seconds: Annotated[float | None, opt(help="Longest time.")] = None,
    depends_on: Annotated[Texts, opt(metavar="ID", help="An item that must be done first. Repeatable.")] = None,
    priority: Annotated[int, opt(help="Higher is earlier.")] = 0,
    key: Annotated[Text, opt(metavar="KEY", help="Idempotency key: the same key is queued only once.")] = None,
    base: Annotated[Text, opt(metavar="REF", help="What to start from, instead of project.base.")] = None,
    allow: Annotated[list[Allowance] | None, opt(metavar="NAME", help=ALLOW)] = None,
    allow_path: Annotated[Texts, opt(metavar="GLOB", help="Protected paths it may touch. Repeatable.")] = None,
    id: Annotated[Text, opt("--id", metavar="ID", help="The item's id, instead of a made one.")] = None,
    answer: Annotated[bool, opt("--answer", help="It ends in a cited answer, not in a change; no checks.")] = False,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Queue an item; prints its id. A key that is known queues nothing and changes nothing."""
    if brief is not None and brief_file is not None:
        raise UsageError("--brief and --brief-file exclude each other", next="give one of them")
    told = text_from(brief_file, "the brief") if brief_file is not None else brief
    new = NewItem(
        title=readable(title, "the title"),
        brief=readable(told, "the brief", lines=True) if told is not None else "",
        checks=checks(check or [], command or []),
        depends_on=tuple(depends_on or ()),
        priority=priority,
        key=readable(key, "the key") if key is not None else None,
        base=readable(base, "the base") if base is not None else None,
        allow=tuple(allow or ()),
        allow_paths=tuple(readable(one, "--allow-path") for one in allow_path or ()),
        id=id,
        deliverable=Deliverable.ANSWER if answer else Deliverable.CHANGE,
    )
    with opened(sets, db) as app_:
        if not app_.config.project.checks:
            from agent_harness import importing

            importing.need_checks([new], 'give --check "python -m pytest"')
        if new.base:
            app_.repository.fetch(app_.source, new.base)  # a name that is none is told now, not when it is run
        limits = limited(app_.config.limits, steps=steps, tokens=tokens, usd=usd, seconds=seconds)
        item, fresh = app_.queue.add(replace(new, limits=limits))
    known = f"nothing was changed: the key is that of {item.id} ({item.state}), {item.title!r}"
    say(f"queued {item.id} ({item.state})" if fresh else known)
    emit(plain(item) | {"new": fresh}, as_json, item.id)


def checks(tests: list[str], commands: list[str]) -> tuple[Check, ...] | None:
    """The item's own checks, None where it has none."""
    found = [Check(readable(one, "--check", lines=True)) for one in tests]
    found += [Check(readable(one, "--command", lines=True), CheckKind.COMMAND) for one in commands]
    return tuple(found) or None


def limited(usual: Ceilings, **given: Any) -> Limits | None:
    """The project's limits with the item's in their place; None where the item has none. Raises UsageError."""
    from pydantic import ValidationError

    found = {name: value for name, value in given.items() if value is not None}
    try:
        return type(usual).model_validate(usual.model_dump() | found).limits if found else None
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--{first['loc'][0]} {first.get('ctx', {}).get('error', first['msg'])}") from None


@app.command("list")
def list_items(*, state: States = None, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """List the items: where each stands and why, until when it waits, what it has spent of its ceiling."""
    with opened(sets, db) as app_:
        items, spent = app_.queue.items(state), app_.spending.spent()
        now, usual = app_.clock.now_ms(), app_.config.limits.limits
    rows, data = [], []
    for i in items:
        stands = f"{i.state} at {when(i.not_before_ms)} UTC" if i.not_before_ms > now else i.state
        told = f"{i.title}: {line(i.reason, 100)}" if i.reason else i.title
        money = of_ceiling(spent[i.id], i.limits or usual)
        rows.append((i.id, stands, i.priority, f"{i.failures}/{i.losses}", money, told))
        data.append(plain(i) | {"spent": plain(spent[i.id])})
    emit(data, as_json, table(("ID", "STATE", "PRIO", "FAILED/LOST", "SPENT", "TITLE"), rows))
    if not rows:
        say("no items")


def of_ceiling(spent: Spend, limits: Limits) -> str:
    """Dollars of dollars."""
    return f"{dollars(spent.nanousd)} of {dollars(limits.nanousd)}"


@app.command()
def show(item: Id, *, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Show an item: its state with the reason, its events."""
    with opened(sets, db) as app_:
        found = app_.queue.get(item)
        events = app_.audit.events(item=found.id)
        answer = json.loads(app_.audit.body(found.answer)) if found.answer else None
        spent = app_.spending.spent()[found.id]
        money = of_ceiling(spent, found.limits or app_.config.limits.limits)
    told = ["", answer["answer"], *cited(answer["evidence"])] if answer else []
    text = "\n".join([described(found, money), *told, "", *map(event_line, events)])
    emit({"item": found, "spent": spent, "answer": answer, "events": events}, as_json, text)


def cited(evidence: Sequence[JSON]) -> list[str]:
    """Citations for people."""
    return [f"- {line(one['says'])} ({line(one['shown'])})" for one in evidence]


def described(item: Item, spent: str) -> str:
    """An item for people."""
    rows = [
        ("item", item.id),
        ("title", item.title),
        ("state", item.state),
        ("reason", item.reason),
        ("attempts", f"{item.generation} ({item.failures} failed, {item.losses} lost)"),
        ("spent", spent),
        ("not before", f"{when(item.not_before_ms)} UTC" if item.not_before_ms else ""),
        ("base", item.base or ""),
        ("branch", item.branch if item.deliverable is Deliverable.CHANGE else ""),
        ("ends in", "an answer" if item.deliverable is Deliverable.ANSWER else ""),
        ("depends on", ", ".join(item.depends_on)),
        ("priority", item.priority or ""),
        ("key", item.key or ""),
        ("checks", "; ".join(check.command for check in item.checks or ()) or "the project's"),
        ("limits", bounds(item.limits) if item.limits else "the project's"),
        ("allowed", ", ".join((*item.allow, *item.allow_paths))),
        ("queued", when(item.created_ms)),
        ("brief", item.brief),
    ]
    return "\n".join(f"{name:<11} {line(str(value))}" for name, value in rows if value)


@app.command("import")
def import_items(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan, a checklist, or issues as JSON; - is stdin.")],
    *,
    dry_run: Annotated[bool, opt("--dry-run", help="Say what would be queued; queue nothing.")] = False,
    done: Annotated[Texts, opt(metavar="ID", help="Import this item as done, by its id there. Repeatable.")] = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Queue what a file holds, in one transaction. Plans that `survey` wrote, Markdown checklists, and GitHub issues as
    `gh issue list --json number,title,body,state,url` prints them. Importing a file again changes nothing."""
    from agent_harness import importing

    source = importing.parse(text_from(file, "the items", importing.LIMIT))
    with opened(sets, db) as app_:
        name, items = named(file, app_.root), app_.queue.items()
        known = {one.key: one for one in items}
        project, ids = app_.config.project.checks, {one.id for one in items}
        new = importing.new_items(source, name, done=done or (), taken=ids, project=project)
        if not project:
            importing.need_checks([one for one in new if one.key not in known], "name checks in the plan")
        placed = dict(zip(new, app_.queue.add_all(new), strict=True)) if not dry_run else {}
        asked = [known[one.key] for one in new if one.done and one.key in known]
    rows = [row(one, placed[one] if placed else (known.get(one.key), one.key not in known)) for one in new]
    for left in source.skipped:
        where = f"line {left.line}: " if left.line else ""
        say(f"not taken as it stands: {where}{left.why}" + (f": {line(left.text, 80)}" if left.text else ""))
    for one in (one for one in new if one.allow_paths and not one.done):
        say(f"{line(one.key or '')} may change protected paths: {line(', '.join(one.allow_paths))}")
    for item in (one for one in asked if one.state is not ItemState.DONE):
        say(f"{item.key} is queued already, and not done there: agent-harness queue done {item.id} --reason TEXT")
    if any(str(one.key).startswith("stdin#") for one in new):
        say("known by stdin#ID, as of any list from stdin: give a file, or a url with each issue, to tell lists apart")
    fresh = sum(one["new"] for one in rows)
    say(f"{'would queue' if dry_run else 'queued'} {fresh}; {len(rows) - fresh} known already")
    shown = [(one["id"] or "-", one["state"], "" if one["new"] else "known", one["key"], one["title"]) for one in rows]
    emit({"items": rows, "skipped": source.skipped}, as_json, table(("ID", "STATE", "", "KEY", "TITLE"), shown))


def named(file: str, root: Path) -> str:
    """What the keys of a file's items begin with: the same from whatever folder, and in every clone, it is imported."""
    if file == "-":
        return "stdin"
    path = Path(file).resolve()
    top = next((one for one in (root, *root.parents) if (one / ".git").exists()), root)
    return os.path.relpath(path, root) if path.is_relative_to(top) else str(path)


def row(new: NewItem, placed: tuple[Item | None, bool]) -> dict[str, Any]:
    """An imported item for the table; one that is not queued yet has the state it would have."""
    item, fresh = placed
    state = item.state if item else ItemState.DONE if new.done else ItemState.BLOCKED if new.needs else ItemState.READY
    return {"id": item.id if item else new.id, "key": new.key, "title": new.title, "state": state, "new": fresh}


@app.command()
def done(
    item: Id,
    *,
    reason: Annotated[str, opt(metavar="TEXT", help="What shows it. Goes into the log.")],
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Declare that an item is done, though no run of it was. What waits for it goes on."""
    with opened(sets, db) as app_:
        moved(app_.queue.finish(item, readable(reason, "--reason")), as_json)


@app.command()
def retry(item: Id, *, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Make an item ready again. Its counters start anew, the reason of its last end stays known."""
    with opened(sets, db) as app_:
        moved(app_.queue.retry(item), as_json)


@app.command()
def cancel(item: Id, *, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Take an item out of the queue."""
    with opened(sets, db) as app_:
        moved(app_.queue.cancel(item), as_json)


def moved(item: Item, as_json: bool) -> None:
    """Say where an item is now."""
    say(f"{item.id} is {item.state}")
    emit(item, as_json, item.id)
