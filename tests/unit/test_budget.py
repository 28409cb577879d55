"""Budgets: no ceiling is passed, whatever the threads do."""

import contextlib
import random
import threading

import pytest

from agent_harness.budget import Budget
from agent_harness.errors import ConfigError, Exit, LimitReached
from agent_harness.types import NANO, Limits, Spend
from fakes.model_parts import FakeClock

WIDE = Limits(10**9, 10**12, 10**15, 10**6)


def ledger(limits: Limits = WIDE, clock: FakeClock | None = None) -> Budget:
    return Budget(clock or FakeClock(), "project", limits)


def use(budget: Budget, worst: Spend, actual: Spend) -> None:
    budget.settle(budget.reserve(worst), actual)


def test_a_call_is_charged_in_the_budget_and_all_above():
    root = ledger()
    item = root.child("item a", WIDE)
    run = item.child("implementer", WIDE)
    use(run, Spend(1, 100, 500), Spend(1, 40, 200))
    assert run.spent() == item.spent() == root.spent() == Spend(1, 40, 200)
    assert root.child("item b", WIDE).spent() == Spend()


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(2, 10**6, 10**9, 100), "steps"),
        (Limits(100, 250, 10**9, 100), "tokens"),
        (Limits(100, 10**6, 25, 100), "spend"),
    ],
)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_first_ceiling_that_could_be_passed_is_named_with_its_scope(limits, name, level):
    chain = [WIDE, WIDE, WIDE]
    chain[level] = limits
    root = ledger(chain[0])
    run = root.child("item a", chain[1]).child("implementer", chain[2])
    for _ in range(2):
        use(run, Spend(1, 100, 10), Spend(1, 100, 10))
    with pytest.raises(LimitReached) as caught:
        run.reserve(Spend(1, 100, 10))
    scope = ["project", "item a", "implementer"][level]
    assert (caught.value.limit, caught.value.scope, caught.value.exit) == (name, scope, Exit.LIMIT)
    assert f"the {name} limit of {scope}" in caught.value.line and "Next: raise" in caught.value.line
    assert run.spent() == Spend(2, 200, 20)


def test_a_refusal_takes_nothing_from_the_budgets_that_had_room():
    root = ledger()
    run = root.child("run", Limits(10, 10, 10, 10))
    with pytest.raises(LimitReached):
        run.reserve(Spend(1, 11, 0))
    run.reserve(Spend(10, 10, 10))
    root.reserve(Spend(WIDE.steps - 10, WIDE.tokens - 10, WIDE.nanousd - 10))


def test_the_last_step_and_the_last_nano_dollar_may_be_used():
    run = ledger(Limits(2, 200, 20, 100))
    for _ in range(2):
        use(run, Spend(1, 100, 10), Spend(1, 100, 10))
    assert run.spent() == Spend(2, 200, 20)


def test_what_was_not_used_can_be_used_again():
    run = ledger(Limits(100, 1000, 100, 100))
    for _ in range(90):
        use(run, Spend(1, 900, 100), Spend(1, 1, 0))
    assert run.spent() == Spend(90, 90, 0)


def test_calls_dearer_than_foreseen_are_charged_in_full_and_then_end_it():  # field case 50
    run = ledger(Limits(100, 10**6, 5 * NANO // 2, 100))
    made = 0
    with pytest.raises(LimitReached, match="spend"):
        while True:
            use(run, Spend(1, 10, NANO // 2), Spend(1, 10, NANO))
            made += 1
    assert (made, run.spent().nanousd) == (3, 3 * NANO)


def test_seconds_end_it_by_the_monotonic_clock():
    clock = FakeClock()
    root = ledger(Limits(9, 9, 9, 10.0), clock=clock)
    clock.sleep(4)
    run = root.child("run", Limits(9, 9, 9, 100.0))
    assert run.seconds_left() == 6
    clock.sleep(6)
    assert run.seconds_left() == 0
    with pytest.raises(LimitReached) as caught:
        run.reserve(Spend(1, 1, 1))
    assert (caught.value.limit, caught.value.scope) == ("seconds", "project")


def test_a_ticket_settles_once_and_only_where_it_was_drawn():
    root = ledger()
    one, two = root.child("one", WIDE), root.child("two", WIDE)
    ticket = one.reserve(Spend(1, 1, 1))
    with pytest.raises(ValueError, match="not open"):
        two.settle(ticket, Spend())
    one.settle(ticket, Spend())
    with pytest.raises(ValueError, match="not open"):
        one.settle(ticket, Spend())
    assert root.spent() == Spend()


@pytest.mark.parametrize("name", ["steps", "tokens", "nanousd", "seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_every_limit_is_required_to_be_positive(name, value):
    with pytest.raises(ConfigError, match="more than 0"):
        ledger(Limits(**{"steps": 1, "tokens": 1, "nanousd": 1, "seconds": 1, name: value}))


def test_calls_that_do_not_fit_are_refused_to_every_thread():  # field case 55
    run = ledger(Limits(100, 10**6, 10 * NANO, 100))
    use(run, Spend(0, 0, 99 * NANO // 10), Spend(0, 0, 99 * NANO // 10))
    allowed = []

    def worker() -> None:
        with contextlib.suppress(LimitReached):
            allowed.append(run.reserve(Spend(1, 1, NANO // 2)))

    threads = [threading.Thread(target=worker) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert allowed == []


def test_ten_thousand_parallel_runs_pass_no_ceiling_by_a_nano_dollar():
    """Each run reserves and settles at random; at every moment spent <= ceiling, and a refusal is only given where
    the money left (what others hold counted as gone) is less than the reservation."""
    limits = Limits(10**9, 10**12, 40_000_000_017, 10**6)
    root = ledger(limits)
    items = [root.child(f"item {n}", Limits(10**9, 10**12, 2_500_000_013, 10**6)) for n in range(20)]
    wrong: list[str] = []
    refused = threading.Semaphore(0)

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for number in range(1250):
            item = dice.choice(items)
            run = item.child(f"run {seed}.{number}", Limits(5, 10**9, dice.randrange(1, 40_000_000), 10**6))
            while True:
                worst = Spend(1, dice.randrange(1, 9000), dice.randrange(1, 20_000_000))
                try:
                    ticket = run.reserve(worst)
                except LimitReached as limit:
                    refused.release()
                    left = run.limits.nanousd - run.spent().nanousd
                    if limit.scope == run.scope and limit.limit == "spend" and left >= worst.nanousd:
                        wrong.append(f"{limit.line}: {left} was left")
                    break
                run.settle(ticket, Spend(1, dice.randrange(worst.tokens + 1), dice.randrange(worst.nanousd + 1)))
                passed = [budget for budget in (run, item, root) if budget.spent().nanousd > budget.limits.nanousd]
                wrong.extend(f"{budget.scope} passed its ceiling" for budget in passed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []
    assert root.spent().nanousd == sum(item.spent().nanousd for item in items)
    # Nothing is left reserved: what remains can be taken to the last nano-dollar.
    root.reserve(Spend(0, 0, limits.nanousd - root.spent().nanousd))
    with pytest.raises(LimitReached):
        root.reserve(Spend(0, 0, 1))
