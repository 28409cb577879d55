"""Workers that spend at random on one store, and a journal that the database itself keeps of what was charged.

The judge is not the code under test: triggers write down every state of every budget, so that a refusal can be held
against the states that there were while it was asked for.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from agent_harness.clock import SystemClock
from agent_harness.config import BudgetSettings
from agent_harness.errors import LimitReached
from agent_harness.queue.spending import Spending
from agent_harness.store import Store
from agent_harness.types import Limits, Mode, Role, Spend

WIDE = 1 << 53
ITEMS = 20
WORST = 20_000_000
NANO_PER_RUN = 8_000_017
"""The project's ceiling for each run: less than they would use, so that it is reached."""

JOURNAL = (
    "CREATE TABLE journal (seq INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT, nanousd INT)",
    """CREATE TRIGGER told AFTER UPDATE ON budget
    BEGIN INSERT INTO journal (scope, nanousd) VALUES (NEW.scope, NEW.nanousd); END""",
)


def role(limits: Limits) -> Role:
    """A role of which only the limits count."""
    return Role("spender", Mode.RW, "", "", {}, (), {}, limits, 1.0)


def settings(runs: int) -> BudgetSettings:
    """A project's ceilings for so many runs."""
    usd = f"{runs * NANO_PER_RUN / 1e9:.9f}"
    return BudgetSettings.model_validate({"per": "ever", "usd": usd, "steps": WIDE, "tokens": WIDE})


def item_limits(runs: int, item: int) -> Limits:
    """An item's: the first ones reach them before the project does."""
    return Limits(WIDE, WIDE, runs * NANO_PER_RUN * (70 + 100 * item // ITEMS) // (ITEMS * 100) + 13, 10**6)


@dataclass
class Told:
    """What one worker says of its runs. A refusal is (scope, worst, journal before, journal after)."""

    used: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, int, int, int]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    calls: int = 0


def work(url: str, seeds: Sequence[int], runs: int, total: int, journal: bool) -> list[Told]:
    """One worker process: a thread for each seed, `runs` runs in each."""
    store, said = Store.open(url), [Told() for _ in seeds]
    spending = Spending(store, SystemClock(), settings(total))
    threads = [
        threading.Thread(target=_spend, args=(spending, seed, (runs, total), told, journal))
        for seed, told in zip(seeds, said, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    return said


def _spend(spending: Spending, seed: int, many: tuple[int, int], told: Told, journal: bool) -> None:
    runs, total = many
    dice = random.Random(seed)
    for number in range(runs):
        index = dice.randrange(ITEMS)
        item = f"i{index}"
        own = Limits(dice.randrange(1, 9), WIDE, dice.randrange(1, 5 * WORST), 10**6)
        budget = spending.budget(f"r{seed}.{number}", item, item_limits(total, index), role(own))
        while True:
            worst = Spend(1, dice.randrange(1, 9000), dice.randrange(1, WORST))
            before = _last(spending.store) if journal else 0
            try:
                ticket = budget.reserve(worst)
            except LimitReached as limit:
                spent = budget.spent()
                if limit.scope == budget.scope:
                    if spent.steps < own.steps and spent.nanousd + worst.nanousd <= own.nanousd:
                        told.wrong.append(f"{limit.line}, after {spent}")
                elif journal:
                    scope = "" if limit.scope == "the project" else item
                    told.refusals.append((scope, worst.nanousd, before, _last(spending.store)))
                break
            actual = Spend(1, dice.randrange(worst.tokens + 1), dice.randrange(worst.nanousd + 1))
            budget.settle(ticket, actual)
            told.calls += 1
            told.used[item] += actual.nanousd
            told.used[""] += actual.nanousd


def _last(store: Store) -> int:
    with store.read() as tx:
        return tx.execute(text("SELECT coalesce(max(seq), 0) FROM journal")).scalar_one()


def storm(url: str, runs: int, processes: int = 4, threads: int = 2) -> dict[str, Any]:
    """Spend at random from all sides; raises AssertionError where a ceiling was passed, a refusal had no reason, or
    the sums do not agree to the nano-dollar. Returns figures."""
    store, journal = Store.open(url), url.startswith("sqlite")
    if journal:
        with store.write() as tx:
            for statement in JOURNAL:
                tx.exec_driver_sql(statement)
    share = runs // (processes * threads)
    tasks = [(url, range(n * threads, (n + 1) * threads), share, runs, journal) for n in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = [told for said in pool.starmap(work, tasks) for told in said]
    used: Counter[str] = sum((told.used for told in found), Counter())
    ceilings = {"": settings(runs).limits.nanousd} | {
        f"i{number}": item_limits(runs, number).nanousd for number in range(ITEMS)
    }
    assert [line for told in found for line in told.wrong] == []
    with store.read() as tx:
        charged = {row.scope: row.nanousd for row in tx.execute(text("SELECT scope, nanousd FROM budget"))}
        held = tx.execute(text("SELECT count(*) FROM reservation")).scalar_one()
        states = tx.execute(text("SELECT seq, scope, nanousd FROM journal ORDER BY seq")).all() if journal else []
    store.close()
    assert held == 0
    assert charged == {scope: used[scope] for scope in charged}
    assert set(used) - set(charged) == set()
    assert [scope for scope, nanousd in charged.items() if nanousd > ceilings[scope]] == []
    assert [row for row in states if row.nanousd > ceilings[row.scope]] == []
    refusals = [one for told in found for one in told.refusals]
    _judge(refusals, states, ceilings)
    return {
        "runs": share * processes * threads,
        "calls": sum(told.calls for told in found),
        "states": len(states),
        "refused by the project": sum(scope == "" for scope, *_ in refusals),
        "refused by an item": sum(scope != "" for scope, *_ in refusals),
        "used of the ceiling": used[""] / ceilings[""],
    }


def _judge(refusals: list[tuple[str, int, int, int]], states: Sequence[Any], ceilings: dict[str, int]) -> None:
    """Each refusal against the budget's states while it was asked for: in one of them it must have been right."""
    by_scope: dict[str, list[tuple[int, int]]] = {scope: [(0, 0)] for scope in ceilings}
    for row in states:
        by_scope[row.scope].append((row.seq, row.nanousd))
    for scope, worst, before, after in refusals:
        line = by_scope[scope]
        start, end = bisect(line, (before, WIDE)) - 1, bisect(line, (after, WIDE))
        most = max(nanousd for _, nanousd in line[start:end])
        assert most + worst > ceilings[scope], f"{scope or 'project'} refused {worst} with {most} of {ceilings[scope]}"
