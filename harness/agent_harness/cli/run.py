"""`run`: take items off the queue and work on them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agent_harness.cli import signals
from agent_harness.cli.events import Progress
from agent_harness.cli.opening import Db, Json, Sets, Text, opened, opt
from agent_harness.cli.output import bounds, emit, line, say
from agent_harness.errors import Cancelled, Exit, NothingToDo, UsageError
from agent_harness.types import dollars

if TYPE_CHECKING:
    from agent_harness.app import App, DryRun
    from agent_harness.receipt import RunReport

GRAVITY = tuple(map(Exit, (7, 4, 130, 3, 8, 6, 2, 1, 0)))
"""Of several items the gravest end is the command's: the audit log, credentials, an interruption, inconclusive, held,
a limit, usage, failed."""

REPLAY = "Take the answers from a file that --record wrote; no model is asked."
Record = Annotated[Path | None, opt(metavar="FILE", help="Write the model's answers to a file, to be replayed.")]
Replay = Annotated[Path | None, opt(metavar="FILE", exists=True, dir_okay=False, help=REPLAY)]


def run(  # noqa: PLR0913 - one parameter per option
    *,
    item: Annotated[Text, opt(metavar="ID", help="This item, not the next that is ready.")] = None,
    once: Annotated[bool, opt("--once", help="One item (the default).")] = False,
    until_empty: Annotated[bool, opt("--until-empty", help="Items until none is ready.")] = False,
    dry_run: Annotated[bool, opt("--dry-run", help="Resolve all, run the checks on the base; ask no model.")] = False,
    record: Record = None,
    replay: Replay = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Work on the queue. Progress goes to stderr, the receipt to stdout."""
    if until_empty and (once or item or dry_run):
        raise UsageError("--until-empty excludes --once, --item and --dry-run", next="leave one of them out")
    with opened(sets, db, record=record, replay=replay) as app:
        uncommitted(app.source)
        if dry_run:
            return show_plan(app.dry_run(item), as_json)
        reports = work(app, item, until_empty)
    for report in reports:
        say(next_step(report))
    emit({"runs": reports}, as_json, "\n\n".join(map(shown, reports)))
    return code([report.exit for report in reports])


def uncommitted(source: str) -> None:
    """Say which changes of a checkout are not seen: work is done on commits. harness.toml is read as it lies there."""
    from agent_harness.git import Git

    if not Path(source).is_absolute():
        return
    done = Git(None, cwd=Path(source)).attempt("diff", "--name-only", "-z", "HEAD", "--")
    names = [os.fsdecode(one) for one in done.out.split(b"\0") if one and one != b"harness.toml"]
    if names and not done.code:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        say(f"note: {len(names)} file(s) have changes that are not committed, and are not seen: {line(shown, 200)}")


def work(app: App, item: str | None, until_empty: bool) -> list[RunReport]:
    """Run, with signals heeded. Raises Cancelled when one came before anything was taken."""
    with signals.cancelling() as cancelled:
        try:
            return app.run(item, until_empty, Progress(), cancelled)
        except NothingToDo:
            if cancelled.is_set():
                raise Cancelled("interrupted", why="no item had been taken") from None
            raise


def code(exits: Iterable[Exit]) -> int:
    """The command's exit code: the gravest; a signal's own number where one ended it."""
    found = set(exits)
    if signals.code():
        found.add(Exit.INTERRUPTED)
    gravest = next(one for one in GRAVITY if one in found)
    return signals.code() or gravest if gravest is Exit.INTERRUPTED else gravest


def shown(report: RunReport) -> str:
    """A report for people: the receipt, and how it ended."""
    from agent_harness.receipt import render

    end = f"delivered   {report.commit} on branch {report.branch}" if report.branch else ""
    return f"{render(report.receipt)}\n{end or f'outcome     {report.outcome}: {line(report.reason)}'}"


def next_step(report: RunReport) -> str:
    """What to do now."""
    if report.branch:
        return f"next: git log -p -1 {report.branch}"
    retry = f"agent-harness queue retry {report.item}"
    again = f"; when set right: {retry}" if report.outcome not in {"answered", "interrupted", "lost"} else ""
    if report.outcome == "inconclusive":
        again = f"; it stays queued, and is ready again after a pause; at once: {retry}"
    return f"next: agent-harness queue show {report.item}; agent-harness audit show {report.run}{again}"


def show_plan(plan: DryRun, as_json: bool) -> int:
    """Print what a run would do; exit 8 where it would be held for its checks."""
    good = f"delivered on {plan.item.branch}, if it passes" if "implementer" in plan.routes else "answered"
    end = "held: no model would be asked" if plan.problems else good
    lines = [
        f"item      {plan.item.id}: {line(plan.item.title)}",
        f"base      {plan.base} of {plan.source}",
        f"image     {plan.image}",
        *(f"check     {one.check.command}: {state(one.passed, one.broken)}, on the base" for one in plan.checks),
        *(f"route     {role}: {', '.join(routes) or 'the recording'}" for role, routes in plan.routes.items()),
        f"limits    {bounds(plan.limits)}",
        f"worst     {dollars(plan.worst_nanousd)}",
        *(f"problem   {line(one)}" for one in plan.problems),
        f"would be  {end}",
    ]
    emit(plan, as_json, "\n".join(lines))
    return Exit.HELD if plan.problems else Exit.OK


def state(passed: bool, broken: str) -> str:
    """A check's end in words."""
    return f"cannot run ({line(broken)})" if broken else "passes" if passed else "fails"
