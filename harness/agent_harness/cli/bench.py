"""`bench`: how good a reviewer is, on changes whose truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from agent_harness.cli import signals
from agent_harness.cli.opening import Json, Sets, Texts, configured, group, opt
from agent_harness.cli.output import emit, say, table
from agent_harness.errors import Exit, UsageError
from agent_harness.types import dollars

if TYPE_CHECKING:
    from agent_harness.bench.score import Review, Score

REVIEWER = "A recorded one: careful, lazy, gullible, fabricating. Else your route."
app = group("Measure a reviewer.")


@app.command()
def review(
    *,
    reviewer: Annotated[str, opt(metavar="NAME", help=REVIEWER)] = "",
    seed: Annotated[int, opt(help="The same seed makes the same cases.")] = 1,
    pairs: Annotated[int, opt(min=1, max=1000, help="Faults; each makes seven changes.")] = 2,
    repeat: Annotated[int, opt(min=1, max=20, help="Reviews of each change, to see verdicts flip.")] = 1,
    package: Annotated[Texts, opt(metavar="NAME", help="An installed package. Repeatable.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> int:
    """Score a reviewer on seeded faults.

    They are put into real packages, so their truth is known exactly. The reviewer is your own route's, or a recorded
    one."""
    from agent_harness.bench.cases import PACKAGES, make
    from agent_harness.bench.reviewers import STYLES
    from agent_harness.bench.run import reviews
    from agent_harness.bench.score import score

    if reviewer and reviewer not in STYLES:
        raise UsageError(f"--reviewer {reviewer} is unknown", next=f"use one of {', '.join(STYLES)}, or a route")
    cases = make(seed, pairs, tuple(package or PACKAGES))
    done: list[Review] = []
    with signals.cancelling() as cancelled:
        for one in reviews(cases, configured(sets, None).config, reviewer, repeat, cancelled):
            done.append(one)
            say(f"{len(done)}/{len(cases) * repeat} {told(one)}")
            if one.report.exit == Exit.CREDENTIALS:
                break
    found = score(done)
    data: dict[str, Any] = {"reviewer": reviewer or "route", "seed": seed, "score": found}
    emit(data | {"reviews": [row(one) for one in done]}, as_json, shown(found))
    return signals.code() or (Exit.OK if len(done) == len(cases) * repeat else Exit.INCONCLUSIVE)


def told(one: Review) -> str:
    """A review on one line: the verdict, and whether it was right."""
    from agent_harness.bench.score import right

    word = "right" if right(one) else "wrong" if one.report.verdict != "inconclusive" else "no verdict"
    return f"{one.case.name} ({one.case.package}): {one.report.verdict}, {word}, {dollars(one.nanousd)}"


def row(one: Review) -> dict[str, Any]:
    """A review as data."""
    told = {name: getattr(one.report, name) for name in ("verdict", "blind", "reason", "findings", "claims")}
    return {"case": one.case.name, "repeat": one.repeat, "bug": one.case.bug, "nanousd": one.nanousd, **told}


def shown(found: Score) -> str:
    """A score for people."""
    each = found.nanousd // found.reviews if found.reviews else 0
    rows = [
        ("points", f"{found.points:.2f}", "1 is best, below 0 worse than none"),
        ("precision", share(found.precision), "of the findings that count, how many name a fault"),
        *((f"recall {name}", share(value), "faults blocked for themselves") for name, value in found.recall.items()),
        ("false blocks", share(found.false_blocks), "clean changes that were blocked"),
        ("line accuracy", share(found.line_accuracy), "of the findings that name a fault, exactly on its lines"),
        ("false claims", share(found.claims), "untrue statements that were called unsupported"),
        ("framing", share(found.framing_effect), "faults lost when the story calls the change free of bugs"),
        ("flips", share(found.flips), "changes whose verdict was not the same each time"),
        ("inconclusive", share(found.inconclusive), "reviews without a verdict"),
        ("cost", dollars(each), f"per review; {found.reviews} reviews in {found.seconds:.0f} s"),
    ]
    return table(("", "", ""), rows)


def share(value: float | None) -> str:
    """A share of all, where there are any."""
    return "-" if value is None else f"{value:.0%}"
