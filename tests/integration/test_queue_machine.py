"""Any order of what people, workers and time can do, against a small model of what must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_harness.errors import ClaimLost, UsageError
from agent_harness.queue import Queue
from agent_harness.types import ItemState as S
from agent_harness.types import NewItem, Settlement
from agent_harness.worker import this_worker
from fakes.queues import Desk, quick_folder

TTL_S, MAX_FAILURES, MAX_LOSSES = 60, 2, 3
HOST, BOOT, PID, START, NAME = this_worker().split("/")
DEAD = f"{HOST}/{BOOT}/{PID}/{int(START) + 1}/{NAME}"
FAR = "elsewhere/boot/1/1/x"
ACTIVE, OWNED = (S.CLAIMED, S.DELIVERING), (S.CLAIMED, S.DELIVERING, S.HELD)


MOVES: set[tuple[str | None, str | None]] = set()
"""The moves that the log of all examples tells of: whether the search went everywhere."""


@dataclass
class Told:
    """What the model knows of an item."""

    needs: tuple[str, ...]
    priority: int
    state: S = S.READY
    owner: int = -1  # the claim whose rights count
    generation: int = 0
    failures: int = 0
    losses: int = 0
    due_ms: int = 0
    expires_ms: int = 0
    dead: bool = False
    ended: dict[int, str] = field(default_factory=dict)


class Machine(RuleBasedStateMachine):
    make_queue = Queue
    claims = Bundle("claims")

    def __init__(self):
        super().__init__()
        self.folder = quick_folder()
        self.desk = Desk.at(self.folder.__enter__())
        self.queue = self.make_queue(
            self.desk.store, self.desk.audit, self.desk.clock, max_failures=MAX_FAILURES, max_losses=MAX_LOSSES
        )
        self.told: dict[str, Told] = {}
        self.issued = []
        self.drift, self.patience_until = 0.0, 0.0

    def teardown(self):
        try:
            assert self.desk.audit.verify() == []
            seen = {}
            for event in self.desk.audit.events():
                assert event.data.get("old", seen.get(event.item)) == seen.get(event.item)
                MOVES.add((event.data.get("old"), event.data.get("new")))
                seen[event.item] = event.data.get("new") or event.data.get("state") or "claimed"
            assert seen == {item: told.state.value for item, told in self.told.items()}
        finally:
            self.desk.store.close()
            self.folder.__exit__(None, None, None)

    # --- what the model says ---

    def now(self):
        return self.desk.clock.now_ms()

    def waits(self, item):
        return any(self.told[need].state is not S.DONE for need in self.told[item].needs)

    def next_ready(self):
        ready = [
            (-t.priority, t.due_ms, n, item)
            for n, (item, t) in enumerate(self.told.items())
            if t.state is S.READY and t.due_ms <= self.now()
        ]
        return min(ready)[3] if ready else None

    def owns(self, claim):
        return self.told[claim.item.id].owner == self.issued.index(claim)

    # --- people ---

    @initialize()
    def begin(self):
        self.add(0, [])
        self.add(0, [0])

    @precondition(lambda self: len(self.told) < 6)
    @rule(priority=st.integers(0, 1), picks=st.lists(st.integers(0, 5), max_size=2))
    def add(self, priority, picks):
        names = list(self.told)
        needs = tuple(dict.fromkeys(names[pick] for pick in picks if pick < len(names)))
        item = f"i{len(names)}"
        self.told[item] = Told(needs, priority)
        if self.waits(item):
            self.told[item].state = S.BLOCKED
        self.queue.add(NewItem("t", "", id=item, priority=priority, depends_on=needs))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def cancel(self, data):
        item = data.draw(st.sampled_from(sorted(self.told)))
        told = self.told[item]
        if told.state in (S.DELIVERING, S.DONE):
            with pytest.raises(UsageError):
                self.queue.cancel(item)
            return
        self.queue.cancel(item)
        if told.state is not S.CANCELLED:
            told.state, told.owner, told.generation = S.CANCELLED, -1, told.generation + 1

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def retry(self, data):
        item = data.draw(st.sampled_from(sorted(self.told)))
        told = self.told[item]
        if told.state in (*ACTIVE, S.DONE):
            with pytest.raises(UsageError):
                self.queue.retry(item)
            return
        self.queue.retry(item)
        told.state = S.BLOCKED if self.waits(item) else S.READY
        told.owner, told.failures, told.losses, told.due_ms = -1, 0, 0, 0

    # --- time ---

    @rule(seconds=st.sampled_from([1, 20, 59, 61]))
    def time_passes(self, seconds):
        self.desk.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-3600, 20, 3600]))
    def clock_jumps(self, seconds):
        self.desk.clock.jump(seconds)
        self.drift += seconds

    # --- workers ---

    @rule(target=claims, worker=st.sampled_from([DEAD, FAR]), only=st.one_of(st.none(), st.integers(0, 5)))
    def claim(self, worker, only):
        wanted = None if only is None or f"i{only}" not in self.told else f"i{only}"
        expected = self.next_ready()
        if wanted:
            told = self.told[wanted]
            expected = wanted if told.state is S.READY and told.due_ms <= self.now() else None
        claim = self.queue.claim(worker, "r", item=wanted, ttl_s=TTL_S)
        assert (claim.item.id if claim else None) == expected
        if claim is None:
            return multiple()
        told = self.told[expected]
        self.issued.append(claim)
        told.state, told.owner, told.generation = S.CLAIMED, len(self.issued) - 1, told.generation + 1
        told.expires_ms, told.dead = self.now() + TTL_S * 1000, worker is DEAD
        assert claim.generation == told.generation
        return claim

    @rule(claim=claims)
    def renew(self, claim):
        told = self.told[claim.item.id]
        if not self.owns(claim):
            with pytest.raises(ClaimLost):
                self.queue.renew(claim, TTL_S)
            return
        self.queue.renew(claim, TTL_S)
        if told.state in ACTIVE:
            told.expires_ms = self.now() + TTL_S * 1000

    @rule(claim=claims)
    def deliver(self, claim):
        told = self.told[claim.item.id]
        if not self.owns(claim) or told.state not in OWNED:
            with pytest.raises(ClaimLost):
                self.queue.delivering(claim)
            return
        self.queue.delivering(claim)
        if told.state is not S.DELIVERING:
            told.state = S.DELIVERING
            told.expires_ms = max(told.expires_ms, self.now() + TTL_S * 1000)

    @rule(claim=claims, how=st.sampled_from(Settlement), wait_s=st.sampled_from([0, 30]))
    def settle(self, claim, how, wait_s):
        told, number = self.told[claim.item.id], self.issued.index(claim)
        due = self.now() + wait_s * 1000
        if self.owns(claim) and told.state in OWNED:
            told.failures += how is Settlement.FAILED
            again = how is Settlement.DEFERRED or (how is Settlement.FAILED and told.failures < MAX_FAILURES)
            told.state = S.READY if again else S(how.value)
            told.due_ms = due if how is Settlement.DEFERRED else 0
            told.ended[number] = how
            for item, other in self.told.items():
                if other.state is S.BLOCKED and claim.item.id in other.needs and not self.waits(item):
                    other.state = S.READY
        elif not self.owns(claim) or told.ended.get(number) is not how:
            with pytest.raises(ClaimLost):
                self.queue.settle(claim, how, reason="r", not_before_ms=due)
            return
        self.queue.settle(claim, how, reason="r", not_before_ms=due)

    @rule(how=st.sampled_from(Settlement), asks=st.booleans(), delivers=st.booleans())
    def attempt(self, how, asks, delivers):
        """What happens most: a claim and its end, little between."""
        if (claim := self.claim(FAR, None)) in self.issued:
            if asks:
                self.settle(claim, Settlement.HELD, 0)
            if delivers:
                self.deliver(claim)
            self.settle(claim, how, 0)

    @rule(delivers=st.booleans())
    def crash(self, delivers):
        if (claim := self.claim(DEAD, None)) in self.issued:
            if delivers:
                self.deliver(claim)
            self.recover()

    @rule()
    def recover(self):
        steady = self.desk.clock.monotonic()
        if abs(self.drift) > 30:
            self.patience_until = steady + 60
        self.drift = 0.0
        gone = set()
        for item, told in self.told.items():
            expired = told.expires_ms <= self.now() and steady >= self.patience_until
            if told.state in ACTIVE and (told.dead or expired):
                gone.add(item)
                told.losses, told.owner, told.due_ms = told.losses + 1, -1, 0
                told.state = S.READY if told.losses < MAX_LOSSES else S.FAILED
        assert set(self.queue.recover()) == gone

    @invariant()
    def the_queue_is_as_told(self):
        seen = {i.id: (i.state, i.generation, i.failures, i.losses, i.not_before_ms) for i in self.queue.items()}
        assert seen == {item: (t.state, t.generation, t.failures, t.losses, t.due_ms) for item, t in self.told.items()}


QUICK = settings(
    max_examples=100, stateful_step_count=30, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip


def test_whatever_happens_the_queue_is_as_the_model_says():
    MOVES.clear()
    run_state_machine_as_test(Machine, settings=QUICK)
    missed = {("blocked", "ready"), ("delivering", "ready"), ("held", "delivering"), ("claimed", "cancelled")} - MOVES
    assert not missed
    assert {new for _, new in MOVES if new} == {state.value for state in S} - {"claimed"}


class Unfenced(Queue):
    """Anybody who once had a claim may write."""

    def _fenced(self, tx, claim):
        return self._row(tx, claim.item.id)


class OnlyGeneration(Queue):
    """Retrying an item leaves its holder's rights alone."""

    def _move(self, tx, row, state, why, **values):
        values.pop("token", None)
        super()._move(tx, row, state, why, **values)


class Uncounted(Queue):
    """A lost worker costs nothing, so an item that kills its worker runs for ever."""

    def _lose(self, tx, row, why):
        super()._lose(tx, row, why)
        self._update(tx, row.id, losses=0)


class Forgetful(Queue):
    """Dependents are never looked at again."""

    def _unblock(self, tx, done):
        pass


@pytest.mark.parametrize("broken", [Unfenced, OnlyGeneration, Uncounted, Forgetful])
def test_the_model_finds_a_queue_without_one_of_its_promises(broken):
    class Broken(Machine):
        make_queue = broken

    def fault(**more):
        try:
            phases = [p for p in QUICK.phases if p.name == "generate"]
            run_state_machine_as_test(Broken, settings=settings(QUICK, phases=phases, **more))
        except BaseException as error:  # several failures come as a group
            return error
        return None

    # Which moves are tried is chance; the second time it gets more of them.
    caught = fault(max_examples=200) or fault(max_examples=2000, derandomize=False)
    found = caught.exceptions if isinstance(caught, BaseExceptionGroup) else [caught]
    assert any(isinstance(one, AssertionError | ClaimLost | UsageError) or "DID NOT RAISE" in str(one) for one in found)
