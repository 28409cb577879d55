"""The store's budget: one ceiling for all workers of a store, whatever they do at the same moment and however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from sqlalchemy import text

from agent_harness.config import BudgetSettings
from agent_harness.errors import Exit, LimitReached
from agent_harness.queue.spending import DAY_MS, SOON_MS, Spending
from agent_harness.store import Store
from agent_harness.types import NANO, Limits, Settlement, Spend
from fakes.queues import Desk, quick_folder
from fakes.spenders import WIDE, role, storm

WHOLE = Limits(WIDE, WIDE, 10**15, 10**6)
RUNS = int(os.environ.get("AGENT_HARNESS_BUDGET_RUNS", "240"))
"""Of the randomised runs; the bench does ten thousand."""


@pytest.fixture
def desk():
    with quick_folder() as folder:
        desk = Desk.at(folder)
        yield desk
        desk.store.close()


def spending(desk: Desk, *, paid: bool = True, **ceilings) -> Spending:
    return Spending(desk.store, desk.clock, BudgetSettings.model_validate(ceilings), paid=paid)


def budget(one: Spending, run: str = "r1", item: str = "i1", item_limits: Limits = WHOLE, limits: Limits = WHOLE):
    return one.budget(run, item, item_limits, role(limits))


def held(desk: Desk) -> int:
    with desk.store.read() as tx:
        return tx.execute(text("SELECT count(*) FROM reservation")).scalar_one()


def test_parallel_runs_pass_no_ceiling_and_no_refusal_is_without_reason():
    with quick_folder() as folder:
        told = storm(f"sqlite:///{folder / 'store.db'}", RUNS)
    assert told["refused by the project"] and told["refused by an item"], "the ceilings were never near"
    assert told["used of the ceiling"] > 0.99


def test_two_workers_have_one_project_ceiling(desk):
    one, two = spending(desk, usd=1), spending(desk, usd=1)
    budget(one, "r1", "i1").reserve(Spend(1, 1, 6 * NANO // 10))
    with pytest.raises(LimitReached, match=r"spend limit of the project's day .* \[budget\]") as caught:
        budget(two, "r2", "i2").reserve(Spend(1, 1, 4 * NANO // 10 + 1))
    assert (caught.value.limit, caught.value.scope, caught.value.exit) == ("spend", "the project's day", Exit.LIMIT)
    budget(two, "r2", "i2").reserve(Spend(1, 1, 4 * NANO // 10))
    assert held(desk) == 2


@pytest.mark.parametrize(("key", "name"), [("steps", "steps"), ("tokens", "tokens")])
def test_the_last_step_and_token_of_the_project_may_be_used(desk, key, name):
    one = budget(spending(desk, **{key: 2}))
    for _ in range(2):
        one.settle(one.reserve(Spend(1, 1, 1)), Spend(1, 1, 1))
    with pytest.raises(LimitReached) as caught:
        one.reserve(Spend(1, 1, 1))
    assert caught.value.limit == name


def test_a_worker_killed_in_a_call_is_charged_its_worst_case_and_the_next_goes_on(desk):
    script = f"""
import sys, time
sys.path[:0] = {[path for path in sys.path if path]!r}
from agent_harness.clock import SystemClock
from agent_harness.config import BudgetSettings
from agent_harness.queue.spending import Spending
from agent_harness.store import Store
from agent_harness.types import Limits, Spend
from fakes.spenders import role
wide = Limits(10**9, 10**12, 10**15, 10**6)
store = Store.open(sys.argv[1])
run = Spending(store, SystemClock(), BudgetSettings(per="ever")).budget("r0", "i1", wide, role(wide))
run.settle(run.reserve(Spend(1, 1000, 700)), Spend(1, 100, 7))
run.reserve(Spend(1, 1000, 500))
print("reserved", flush=True)
time.sleep(60)
"""
    url = desk.store._engine.url.render_as_string()
    with subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"reserved\n"
        one = spending(desk, per="ever")
        assert one.recover() == 0, "a living worker's call was given up"
        os.kill(worker.pid, signal.SIGKILL)
    assert one.spent()["i1"] == Spend(2, 1100, 507)
    assert (one.recover(), one.recover(), held(desk)) == (1, 0, 0)
    assert one.spent()["i1"] == Spend(2, 1100, 507), "giving up a call gave its money back"
    run = budget(one, "r1", "i1", Limits(WIDE, WIDE, 600, 10**6))
    with pytest.raises(LimitReached, match="item i1"):
        run.reserve(Spend(1, 1, 94))
    run.settle(run.reserve(Spend(1, 1, 93)), Spend(1, 1, 93))


def test_what_another_host_holds_is_given_up_in_time(desk):
    one = spending(desk)
    one.worker = "elsewhere/boot/1/1/x"
    budget(one).reserve(Spend(1, 1, 1))
    desk.clock.advance(3599)
    assert one.recover() == 0
    desk.clock.advance(2)
    assert one.recover() == 1


def test_what_was_given_up_is_not_taken_back_when_its_worker_lives_after_all(desk):
    one = spending(desk)
    run = budget(one)
    ticket = run.reserve(Spend(1, 1000, 1000))
    desk.clock.advance(4000)
    assert spending(desk).recover() == 1
    run.settle(ticket, Spend(1, 1, 1))
    assert one.spent()["i1"] == Spend(1, 1000, 1000)
    assert run.spent() == Spend(1, 1, 1)


def test_an_items_ceilings_span_its_attempts_and_workers_until_a_person_retries_it(desk):
    desk.add("i1")
    claim = desk.claim()
    limits = Limits(3, WIDE, WIDE, 10**6)
    first = budget(spending(desk), "r1", "i1", limits)
    late = first.reserve(Spend(1, 10, 10))
    desk.queue.settle(claim, Settlement.DEFERRED, reason="the provider")
    second = budget(spending(desk), "r2", "i1", limits)
    for _ in range(2):
        second.settle(second.reserve(Spend(1, 10, 10)), Spend(1, 10, 10))
    with pytest.raises(LimitReached, match=r"item i1 is reached: 3 of 3 steps"):
        second.reserve(Spend(1, 1, 1))
    desk.queue.retry("i1")
    one = spending(desk)
    assert one.spent()["i1"] == Spend()
    third = budget(one, "r3", "i1", limits)
    third.settle(third.reserve(Spend(1, 5, 5)), Spend(1, 5, 5))
    first.settle(late, Spend())
    assert one.spent()["i1"] == Spend(1, 5, 5), "a call from before the retry changed what was spent after it"


def test_a_new_day_has_new_money_and_a_call_over_midnight_belongs_to_the_old_one(desk):
    one = spending(desk, steps=2)
    run = budget(one)
    ticket = run.reserve(Spend(1, 1, 1))
    other = run.reserve(Spend(1, 1, 1))
    with pytest.raises(LimitReached, match="day"):
        one.need_room()
    desk.clock.advance(86_400)
    one.need_room()
    run.settle(ticket, Spend())
    run.settle(other, Spend(1, 1, 1))
    with desk.store.read() as tx:
        rows = tx.execute(text("SELECT period, steps FROM budget WHERE scope = '' ORDER BY period")).all()
    assert [row.steps for row in rows] == [1]
    [run.reserve(Spend(1, 1, 1)) for _ in range(2)]
    with pytest.raises(LimitReached):
        run.reserve(Spend(1, 1, 1))


def test_a_month_and_for_ever_go_on_over_midnight(desk):
    for per in ("month", "ever"):
        run = budget(spending(desk, per=per, steps=1), f"r-{per}")
        run.reserve(Spend(1, 1, 1))
        desk.clock.advance(86_400)
        with pytest.raises(LimitReached, match="month" if per == "month" else "the project is reached"):
            run.reserve(Spend(1, 1, 1))


def test_when_to_try_again_depends_on_what_is_spent_and_what_is_only_held(desk):
    one, two = spending(desk, usd="0.000001"), spending(desk, usd="0.000001")
    run, other = budget(one), budget(two, "r2", "i2")
    ticket = run.reserve(Spend(1, 1, 900))
    with pytest.raises(LimitReached):
        other.reserve(Spend(1, 1, 200))
    assert two.closed_ms == desk.clock.now_ms() + SOON_MS, "the other's call may leave enough"
    run.settle(ticket, Spend(1, 1, 900))
    with pytest.raises(LimitReached):
        other.reserve(Spend(1, 1, 200))
    assert two.closed_ms % DAY_MS == 0 and 0 < two.closed_ms - desk.clock.now_ms() <= DAY_MS
    other.reserve(Spend(1, 1, 100))
    assert two.closed_ms == 0, "a smaller call had room"
    with pytest.raises(LimitReached):
        other.reserve(Spend(1, 1, 1001))
    assert two.closed_ms == 0, "no day has room for that one"


def test_the_projects_seconds_are_those_of_all_workers(desk):
    one, two = (budget(spending(desk, seconds=100), run, run) for run in ("r1", "r2"))
    first = one.reserve(Spend(1, 1, 1))
    desk.clock.advance(60)
    one.settle(first, Spend(1, 1, 1))
    assert one.seconds_left() == 40
    second = two.reserve(Spend(1, 1, 1))  # it has lived as long as the other one
    assert two.seconds_left() == 0
    two.settle(second, Spend(1, 1, 1))
    with pytest.raises(LimitReached) as caught:
        one.reserve(Spend(1, 1, 1))
    assert caught.value.limit == "seconds"


def test_a_replay_costs_the_project_nothing_and_its_item_what_was_recorded(desk):
    one = spending(desk, paid=False, usd="0.000000001")
    run = budget(one)
    run.settle(run.reserve(Spend(1, 1, 100)), Spend(1, 1, 50))
    assert one.spent()["i1"] == Spend(1, 1, 50)
    budget(one, "r2", "").reserve(Spend(1, 1, 100))
    assert held(desk) == 0 and one.closed_ms == 0


def test_a_review_without_an_item_counts_for_the_project(desk):
    run = budget(spending(desk, steps=1), "r1", "")
    run.reserve(Spend(1, 1, 1))
    with pytest.raises(LimitReached, match="the project"):
        budget(spending(desk, steps=1), "r2", "").reserve(Spend(1, 1, 1))


class Watched(Store):
    """A store that notes which of its writes wait for the disk."""

    def write(self, wait_s: float = 30.0, *, synced: bool = True, **more):
        self.synced = [*getattr(self, "synced", []), synced]
        return super().write(wait_s, synced=synced, **more)


def test_neither_write_waits_for_the_disk(desk):
    with quick_folder() as folder:
        desk.store.close()
        desk.store = Watched.open(f"sqlite:///{folder / 'store.db'}")
        run = budget(spending(desk))
        before = len(desk.store.synced)
        run.settle(run.reserve(Spend(1, 1, 1)), Spend(1, 1, 1))
        assert desk.store.synced[before:] == [False, False]
