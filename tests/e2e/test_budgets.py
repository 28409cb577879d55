"""The project's ceilings in real runs: what they stop, what stays queued, and that it goes on when there is money."""

from __future__ import annotations

import threading

import pytest

from agent_harness.errors import Exit, LimitReached
from agent_harness.queue.spending import DAY_MS
from agent_harness.types import ItemState
from e2e import scripts

pytestmark = pytest.mark.docker

LOOKING = [scripts.bash(f"echo {number}") for number in range(9)]


def test_the_projects_ceiling_ends_the_batch_and_the_rest_stays_queued(desk):  # field cases 56, 61
    with desk.serving(coder=LOOKING, critic=()) as server:
        desk.settings("[budget]\nsteps = 3\n")
        with desk.app() as app:
            items = [desk.add(app, title=f"Task {number}") for number in range(3)]
            (report,) = app.run(None, True, desk.events.append, threading.Event())
            assert (report.exit, report.outcome) == (Exit.LIMIT, "incomplete")
            assert "the steps limit of the project's day is reached: 3 of 3 steps" in report.reason
            assert len(server.requests) == 3, "a step is one answer"
            found = [app.queue.get(item) for item in items]
            assert [one.state for one in found] == [ItemState.READY] * 3, (
                "the ceiling was the project's, not the item's"
            )
            assert [one.generation for one in found] == [1, 0, 0]
            assert found[0].not_before_ms % DAY_MS == 0 and found[0].failures == 0
            assert app.spending.spent()[items[0]].steps == 3
        with (
            desk.app() as later,
            pytest.raises(LimitReached, match=r"project's day .*Next: raise \[budget\]") as caught,
        ):
            later.run(None, True, desk.events.append, threading.Event())
        assert caught.value.exit is Exit.LIMIT
        assert len(server.requests) == 3
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings("[budget]\nsteps = 50\n")
        with desk.app() as app:
            assert desk.run(app, items[1]).exit is Exit.OK
            assert app.audit.verify() == []


def test_an_items_own_ceiling_waits_for_a_person(desk):
    with desk.serving(coder=LOOKING, critic=()):
        desk.settings("[limits]\nsteps = 2\n")
        with desk.app() as app:
            item = desk.add(app)
            report = desk.run(app, item)
            assert (report.exit, app.queue.get(item).state) == (Exit.LIMIT, ItemState.EXHAUSTED)
            assert f"the steps limit of item {item} is reached: 2 of 2" in report.reason


def test_the_last_allowed_step_may_be_the_one_that_submits(desk):  # field case 62
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER) as server:
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
            desk.run(app, item)
            needed = app.spending.spent()[item].steps
    assert needed == len(server.requests)
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings(f"[limits]\nsteps = {needed}\n[budget]\nsteps = {2 * needed}\n")
        with desk.app() as app:
            again = desk.add(app, title="The same once more")
            report = desk.run(app, again)
            assert report.exit is Exit.OK, report.reason
