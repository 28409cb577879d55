"""`audit`: what happened, what it cost, and whether the log still proves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from agent_harness.cli.events import event_line
from agent_harness.cli.opening import Db, Json, Sets, group, opened
from agent_harness.cli.output import emit, say, table, when
from agent_harness.errors import Exit, UsageError
from agent_harness.types import Event, dollars
from agent_harness.types.kinds import Kind

if TYPE_CHECKING:
    from agent_harness.app import App
    from agent_harness.audit import Cost

app = group("Look into the audit log.")

Body = Annotated[bool, typer.Option("--body", help="Print the bodies that events name by digest, too.")]
Target = Annotated[str | None, typer.Argument(metavar="[ITEM|RUN]", help="An item or a run; everything without one.")]
CALLS = (Kind.MODEL_ASKED, Kind.MODEL_ANSWERED, Kind.MODEL_FAILED)


@app.command()
def ls(*, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """List the runs."""
    with opened(sets, db) as app_:
        events = app_.audit.events(kinds=[Kind.RUN_STARTED, Kind.RUN_ENDED, *CALLS])
        from agent_harness.audit import Cost, tally
        from agent_harness.audit.cost import of_run

    sums = tally(events, of_run)
    ends = {event.run: event.data["outcome"] for event in events if event.kind == Kind.RUN_ENDED}
    rows, data = [], []
    for run, item, ms, mode in ((e.run, e.item, e.at_ms, e.data["mode"]) for e in events if e.kind == Kind.RUN_STARTED):
        cost, end = sums.get(run, Cost()), ends.get(run, "not ended")
        rows.append((run, item, when(ms), mode, cost.steps, money(cost), end))
        data.append({"run": run, "item": item, "started_ms": ms, "mode": mode, "outcome": end, "cost": cost})
    emit(data, as_json, table(("RUN", "ITEM", "STARTED", "MODE", "ANSWERS", "COST", "OUTCOME"), rows))
    if not rows:
        say("no runs")


@app.command()
def show(target: Target = None, *, body: Body = False, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Print events."""
    with opened(sets, db) as app_:
        events = of_target(app_, target)
        named = {event.seq: event.data.get("bodies", ()) if body else () for event in events}
        bodies = {one.seq: {name: app_.audit.body(one.data[name]) for name in named[one.seq]} for one in events}
    data = [asdict(event) | ({"bodies": bodies[event.seq]} if body else {}) for event in events]
    emit(data, as_json, "\n".join(text for event in events for text in told(event, bodies[event.seq])))
    if not events:
        say("no events")


def told(event: Event, bodies: dict[str, bytes]) -> Iterator[str]:
    """An event and its bodies for people."""
    yield event_line(event)
    for name, content in bodies.items():
        yield f"        {name} ({len(content)} bytes)"
        yield from (f"        | {one}" for one in content.decode("utf-8", "backslashreplace").splitlines())


def of_target(app_: App, target: str | None) -> list[Event]:
    """The events of an item or a run. Raises UsageError where there are none of that name."""
    if target is None:
        return list(app_.audit.events())
    events = app_.audit.events(item=target) or app_.audit.events(run=target)
    if not events:
        raise UsageError(f"there is no item or run {target}", next="agent-harness audit ls")
    return list(events)


@app.command()
def cost(target: Target = None, *, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Print what each item and role cost. Sums of all calls, failed ones included."""
    with opened(sets, db) as app_:
        from agent_harness.audit import Cost, tally
        from agent_harness.audit.cost import of_role

        calls = [event for event in of_target(app_, target) if event.kind in CALLS]
    sums = tally(calls, lambda event: (event.item, of_role(event)))
    whole = sum(sums.values(), Cost())
    rows = [(item, role, *cells(one)) for (item, role), one in sums.items()]
    data = [{"item": item, "role": role, **asdict(one)} for (item, role), one in sums.items()]
    head = ("ITEM", "ROLE", "ANSWERS", "FAILED", "OPEN", "TOKENS IN", "TOKENS OUT", "COST")
    emit({"rows": data, "total": whole}, as_json, table(head, [*rows, ("total", "", *cells(whole))]))


def cells(cost: Cost) -> tuple[object, ...]:
    """A sum for the table. What has no price is said, never counted as nothing."""
    return cost.steps, cost.failed_calls, cost.dangling, cost.input, cost.output, money(cost)


def money(cost: Cost) -> str:
    """Dollars, and how many answers have no price."""
    unpriced = f"{cost.unpriced} unpriced" if cost.unpriced else ""
    return " + ".join(one for one in (dollars(cost.nanousd) if cost.nanousd or not unpriced else "", unpriced) if one)


@app.command()
def stats(*, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Count how reviews ended.

    Also how often the change's own story altered a verdict."""
    with opened(sets, db) as app_:
        judged = [event.data for event in app_.audit.events(kinds=[Kind.REVIEW_JUDGED])]
    asked = [one for one in judged if not one["remembered"]]
    told = [one for one in asked if one["told"]]
    proofs = sum((Counter(one["proofs"]) for one in asked), Counter[str]())
    counts = {
        "reviews": len(judged),
        "remembered": len(judged) - len(asked),
        **{name: sum(one["verdict"] == name for one in asked) for name in ("pass", "fail", "inconclusive")},
        "told the story": len(told),
        "verdict altered by it": sum(one["altered"] for one in told),
        "taken back by it, in vain": sum(one["told"] == "pass" != one["blind"] for one in told),
        "claims unsupported": sum(one["unsupported"] for one in told),
        **{f"findings {name}": proofs[name] for name in ("proven", "verified", "unverified")},
    }
    data = {name.replace(",", "").replace(" ", "_"): count for name, count in counts.items()}
    emit(data, as_json, table(("REVIEWS", "COUNT"), list(counts.items())))


@app.command()
def verify(*, sets: Sets = None, db: Db = None, as_json: Json = False) -> int:
    """Check that the log still proves what it says. Its tree, its bodies, and the trailers of what was
    delivered; exit 7 where something is wrong."""
    with opened(sets, db) as app_:
        problems = app_.verify()
        size, root = app_.audit.root()
    emit({"ok": not problems, "size": size, "root": root, "problems": problems}, as_json, "\n".join(problems))
    say(f"{len(problems)} problem(s)" if problems else f"the log holds: {size} events, root {root}")
    return Exit.AUDIT if problems else Exit.OK
