"""`survey`: a plan for an objective, from a model that read the repository; `assess`: what of a plan is done."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_harness.cli import signals
from agent_harness.cli.events import Progress
from agent_harness.cli.opening import Db, Json, Sets, opened, opt, readable, text_from
from agent_harness.cli.output import emit, line, say, write_whole
from agent_harness.cli.queue import cited, named
from agent_harness.cli.run import Record, Replay, code
from agent_harness.errors import UsageError
from agent_harness.types import Item, ItemState

if TYPE_CHECKING:
    from agent_harness.asking import Asked
    from agent_harness.plans import PlanItem

Base = Annotated[str | None, opt(metavar="REF", help="What is looked at, instead of project.base.")]


def survey(  # noqa: PLR0913 - one parameter per option
    objective: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="What is to be reached.")],
    *,
    base: Base = None,
    into: Annotated[Path | None, opt(metavar="FILE", help="Write the plan there, to be edited and imported.")] = None,
    force: Annotated[bool, opt("--force", help="Let --into replace a file that is there.")] = False,
    record: Record = None,
    replay: Replay = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Have the repository read and a plan made of it. What the plan says of it is cited, and followed by code."""
    from agent_harness import asking, plans

    told = readable(objective, "the objective", lines=True)
    if into is not None:
        need_place(into, force)
    with opened(sets, db, record=record, replay=replay) as app, signals.cancelling() as cancelled:
        report = app.ask(asking.of_objective(told, base, app.config), Progress(), cancelled)
    if report.result is None:
        return unanswered(report, as_json)
    plan = asking.plan_of(report.result)
    text = plans.write(plan)
    if into is not None:
        try:
            write_whole(into, text, over=force)
        except OSError as error:
            emit({"plan": plan}, as_json, text)  # it is paid for
            need_place(into, force)
            raise UsageError(f"cannot write {into}", why=error.strerror or "") from None
        say(f"next: look through it, then agent-harness queue import {shlex.quote(str(into))}")
    emit({"exit": report.exit, "survey": report, "plan": plan}, as_json, str(into) if into else text.rstrip("\n"))
    return code([report.exit])


def assess(
    file: Annotated[str, typer.Argument(metavar="PLAN", help="A plan, a checklist, or issues as JSON; - is stdin.")],
    *,
    base: Base = None,
    record: Record = None,
    replay: Replay = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Find what of a plan is done, with evidence that code followed. It proposes, and changes nothing."""
    from agent_harness import asking, importing

    source = importing.parse(text_from(file, "the plan", importing.LIMIT))
    with opened(sets, db, record=record, replay=replay) as app, signals.cancelling() as cancelled:
        name = named(file, app.root)
        report = app.ask(asking.of_plan(source.plan.items, base), Progress(), cancelled)
        queued = {one.key: one for one in app.queue.items()}
    if report.result is None:
        return unanswered(report, as_json)
    of = {one.id: one for one in source.plan.items}
    items = {one["id"]: queued.get(importing.key(of[one["id"]], one["id"], name)) for one in report.result["items"]}
    confirm = confirming(report, of, items, file)
    told = [report.result["summary"]]
    for one in report.result["items"]:
        state = str(one["state"]).replace("_", " ")
        ticked = " (the plan says it is done)" if of[one["id"]].done and state != "done" else ""
        missing = [f"  missing: {line(one['missing'])}"] if one.get("missing") else []
        told += ["", f"{one['id']}: {state}{ticked}. {line(one['why'])}", *missing]
        told += [f"  {text}" for text in cited(one["evidence"])]
    if confirm:
        told += ["", "nothing was changed; what is right, a person says:", *(f"  {one}" for one in confirm)]
    emit({"exit": report.exit, "assessment": report, "confirm": confirm}, as_json, "\n".join(told))
    return code([report.exit])


def confirming(report: Asked, of: dict[str, PlanItem], queued: dict[str, Item | None], file: str) -> list[str]:
    """The commands by which a person agrees that what was found done is done. No text of the model is in them."""
    assert report.result is not None
    done = [one["id"] for one in report.result["items"] if one["state"] == "done"]
    known = [item for name in done if (item := queued[name]) and item.state is not ItemState.DONE]
    words = [f"agent-harness queue done {item.id} --reason 'assessed in {report.run}'" for item in known]
    if fresh := [name for name in done if queued[name] is None and not of[name].done]:
        flags = " ".join(f"--done {shlex.quote(name)}" for name in fresh)
        words.append(f"agent-harness queue import {shlex.quote(file)} {flags}")
    return words


def unanswered(report: Asked, as_json: bool) -> int:
    """What code can tell where the role gave no answer that holds; said to be that."""
    facts = [f"  ran: {line(one, 120)}" for one in report.commands]
    facts += [f"  refused: {line(one, 400)}" for one in report.refused]
    head = f"no answer of the {report.role} holds: {line(report.reason)}"
    label = f"this report was made by code, not by a model; base {report.base[:12]}, run {report.run}"
    emit({"exit": report.exit, "by": "code", "report": report}, as_json, "\n".join([head, label, *facts]))
    return code([report.exit])


def need_place(path: Path, force: bool) -> None:
    """Raises UsageError where a plan could not be written, before it costs anything."""
    if path.is_dir() or (path.exists() and not force):
        raise UsageError(f"{path} is there already", next="name another file, or give --force to replace it")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}", why=f"{path.parent} is no folder that can be written")
