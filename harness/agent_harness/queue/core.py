"""Claims and their ends: one state machine, in one database, with an event for every move.

A claim carries a token that nobody else has and a generation that only grows. Whoever lost a claim is refused here,
and at the git ref by the generation. All moves run in serial write transactions, so a row that was read in one is
still the same when it is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, literal, select

from agent_harness.audit import AuditLog
from agent_harness.errors import ClaimLost, UsageError
from agent_harness.ports import Clock
from agent_harness.queue import adding
from agent_harness.queue.adding import plain
from agent_harness.queue.reaper import Reaper
from agent_harness.queue.rows import load
from agent_harness.store import Store
from agent_harness.store.tables import ANSWER, ATTEMPT, BUDGET, DEPENDENCY, ITEM, RESERVATION, WANTED
from agent_harness.types import Claim, Item, ItemState, NewItem, Settlement
from agent_harness.types.kinds import Kind

TTL_S = 60.0
"""How long a claim lasts without being renewed."""

LOST = "lost"
"""The outcome of an attempt whose worker vanished."""

_ACTIVE = (ItemState.CLAIMED, ItemState.DELIVERING)
_OWNED = (*_ACTIVE, ItemState.HELD)  # who holds an item for a person may still act once the answer is there
_ORDER = (ITEM.c.priority.desc(), ITEM.c.not_before_ms, ITEM.c.position)


class Queue:
    """The queue of one store. Safe for threads and processes.

    An item fails for good after `max_failures` failed attempts, or when its worker vanished `max_losses` times. It is
    held for a person when `max_losses` attempts are lost and the last one to its surroundings.
    """

    def __init__(
        self, store: Store, audit: AuditLog, clock: Clock, *, max_failures: int = 1, max_losses: int = 3
    ) -> None:
        self.clock = clock
        self._store, self._audit = store, audit
        self._max_failures, self._max_losses = max_failures, max_losses
        self._reaper = Reaper(clock)

    # --- people ---------------------------------------------------------------------------------------------

    def add(self, new: NewItem) -> tuple[Item, bool]:
        """Queue an item; False says that its key was known, and the item is the one queued then. Raises UsageError."""
        return self.add_all([new])[0]

    def add_all(self, new: Sequence[NewItem]) -> list[tuple[Item, bool]]:
        """Queue all or none. They may depend on each other, in any order, by the ids given. Raises UsageError."""
        drafts = [adding.clean(one, self._audit.redact) for one in new]
        with self._store.write() as tx:
            placed, waited = adding.insert(tx, self._audit, drafts, self._now(tx))
            for row in (self._row(tx, item) for item in waited):
                if row.state == ItemState.BLOCKED and not self._waits(tx, row.id):
                    self._move(tx, row, ItemState.READY, "what it waited for is done", reason=row.reason)
            return [(self._load(tx, item), added) for item, added in placed]

    def get(self, item: str) -> Item:
        """One item. Raises UsageError when there is none."""
        with self._store.read() as tx:
            return self._load(tx, item)

    def items(self, states: Collection[str] | None = None) -> list[Item]:
        """The items, those in `states` where given, in the order in which they are claimed."""
        query = select(ITEM).order_by(*_ORDER)
        if states is not None:
            query = query.where(ITEM.c.state.in_([str(state) for state in states]))
        with self._store.read() as tx:
            return load(tx, tx.execute(query))

    def retry(self, item: str) -> Item:
        """Make an item ready (or blocked, by what it depends on) with all its counters and its spending at zero.

        Its last reason and feedback stay, for the next attempt to read. Whoever held it may write nothing more.
        Raises UsageError for one that is done or being worked on.
        """
        with self._store.write() as tx:
            row = self._open(tx, item, "be retried")
            state = ItemState.BLOCKED if self._waits(tx, item) else ItemState.READY
            tx.execute(BUDGET.delete().where(BUDGET.c.scope == item))
            tx.execute(RESERVATION.delete().where(RESERVATION.c.item == item))  # what is settled late, is nobody's
            self._move(tx, row, state, "retried", token="", failures=0, losses=0, not_before_ms=0, reason=row.reason)
            return self._load(tx, item)

    def finish(self, item: str, why: str) -> Item:
        """Take a person's word that an item is done; it is not run (again), and what waited for it goes on.

        Raises UsageError for one that is done, or that a worker has."""
        with self._store.write() as tx:
            row = self._open(tx, item, "be declared done")
            reason = plain(self._audit.redact(f"declared done: {why}"))
            self._move(tx, row, ItemState.DONE, reason, token="", generation=row.generation + 1)
            self._unblock(tx, item)
            return self._load(tx, item)

    def cancel(self, item: str) -> Item:
        """Take an item out. A worker that has it is fenced at once. Repeating it changes nothing.

        Raises UsageError for one that is done, or whose delivery has begun and may have landed already.
        """
        with self._store.write() as tx:
            row = self._row(tx, item)
            if row.state in {ItemState.DELIVERING, ItemState.DONE}:
                how = "wait for its end, then look again" if row.state == ItemState.DELIVERING else ""
                raise UsageError(f"the item {item} cannot be cancelled", why=f"it is {row.state}", next=how)
            if row.state == ItemState.CLAIMED:
                self._end_attempt(tx, row, Settlement.CANCELLED)
            if row.state != ItemState.CANCELLED:
                self._move(tx, row, ItemState.CANCELLED, "cancelled", token="", generation=row.generation + 1)
            return self._load(tx, item)

    # --- workers --------------------------------------------------------------------------------------------

    def claim(self, worker: str, run: str, *, item: str | None = None, ttl_s: float = TTL_S) -> Claim | None:
        """Take the first ready item (or this one, if it is ready); None when there is none.

        The attempt is counted with it, before anything is done. Raises UsageError when `item` does not exist.
        """
        with self._store.write() as tx:
            now = self._now(tx)
            ready = literal(ItemState.READY.value, literal_execute=True)  # else no partial index serves it
            query = select(ITEM).where(ITEM.c.state == ready, ITEM.c.not_before_ms <= now)
            if item is not None:
                query = query.where(ITEM.c.id == self._row(tx, item).id)
            row = tx.execute(query.order_by(*_ORDER).limit(1)).one_or_none()
            if row is None:
                return None
            owner = {"token": secrets.token_hex(16), "run": run, "worker": worker}
            generation, expires = row.generation + 1, now + round(ttl_s * 1000)
            self._update(tx, row.id, state=ItemState.CLAIMED.value, generation=generation, expires_ms=expires, **owner)
            tx.execute(ATTEMPT.insert().values(item=row.id, generation=generation, started_ms=now, **owner))
            self._audit.append(
                Kind.ITEM_CLAIMED, {"generation": generation, "worker": worker}, item=row.id, run=run, tx=tx
            )
            return Claim(self._load(tx, row.id), owner["token"], generation, run, worker, expires)

    def renew(self, claim: Claim, ttl_s: float = TTL_S, wait_s: float = 30.0) -> Claim:
        """Prolong a claim. Raises ClaimLost.

        A beat that comes after its own worker held or settled the item is late, not lost: it changes nothing.
        """
        with self._store.write(wait_s) as tx:
            row = self._fenced(tx, claim)
            if row.state not in _ACTIVE:
                return claim
            expires = self._now(tx) + round(ttl_s * 1000)
            tx.execute(ITEM.update().where(ITEM.c.id == claim.item.id).values(expires_ms=expires))
            return replace(claim, expires_ms=expires)

    def delivering(self, claim: Claim) -> None:
        """Say that the delivery begins; from here it may have landed. Raises ClaimLost. Repeating changes nothing."""
        with self._store.write() as tx:
            row = self._fenced(tx, claim)
            if row.state not in _OWNED:
                raise _lost(claim, f"it is {row.state}")
            if row.state != ItemState.DELIVERING:
                # A held item's claim may have run out while a person thought.
                expires = max(row.expires_ms, self._now(tx) + round(TTL_S * 1000))
                self._move(tx, row, ItemState.DELIVERING, "delivery begins", expires_ms=expires)

    def settle(
        self,
        claim: Claim,
        settlement: Settlement,
        *,
        reason: str,
        feedback: str = "",
        not_before_ms: int = 0,
        answer: str = "",
        lost: bool = False,
    ) -> Item:
        """End an attempt; returns the item as it is then. Raises ClaimLost.

        FAILED counts, and leaves the item ready while it has attempts left. DEFERRED counts nothing, and leaves it
        ready from `not_before_ms` on. HELD keeps the claim's rights until somebody retries or cancels the item.
        `feedback` is for the next attempt; without any, an end that judged nothing keeps what was there. `answer` is
        the digest of what the item ended in. `lost` says that a deferred attempt was paid for all the same: that is a
        loss, and the last one holds the item, so that nobody pays for ever.
        """
        clear = self._audit.redact
        reason, feedback = plain(clear(reason)), plain(clear(feedback))
        with self._store.write() as tx:
            row = self._fenced(tx, claim)
            if row.state not in _OWNED:
                mine = _attempt(claim.item.id, claim.generation)
                # said twice: the first answer may not have arrived
                if tx.execute(select(ATTEMPT.c.outcome).where(mine)).scalar_one_or_none() == settlement:
                    return self._load(tx, claim.item.id)
                raise _lost(claim, f"it is {row.state}")
            failures = row.failures + (settlement is Settlement.FAILED)
            if settlement not in {Settlement.DONE, Settlement.FAILED}:
                feedback = feedback or row.feedback
            losses = row.losses + lost
            if lost and losses >= self._max_losses:
                settlement, reason = Settlement.HELD, self._loss(reason, losses)
            again = settlement is Settlement.FAILED and failures < self._max_failures
            state = ItemState.READY if again or settlement is Settlement.DEFERRED else ItemState(settlement.value)
            later = not_before_ms if settlement is Settlement.DEFERRED else 0
            counts = {"failures": failures, "losses": losses}
            self._move(tx, row, state, reason, **counts, feedback=feedback, not_before_ms=later)
            self._end_attempt(tx, row, settlement)
            if answer:
                tx.execute(ANSWER.insert().values(item=row.id, digest=answer))
            if state is ItemState.DONE:
                self._unblock(tx, claim.item.id)
            return self._load(tx, claim.item.id)

    def recover(self) -> list[str]:
        """Take back the items whose worker is gone; returns their ids.

        At once where the worker ran here and its process is dead, also in the middle of a delivery (which looks for
        what landed before it writes); for all others once their claim expired.
        """
        with self._store.read() as tx:
            active = tx.execute(select(ITEM).where(ITEM.c.state.in_(_ACTIVE))).all()
            suspects = self._reaper.suspects(active, self._now(tx))
        if not suspects:
            return []
        taken = []
        with self._store.write() as tx:
            for seen, dead, why in suspects:
                row = self._row(tx, seen.id)
                same = (row.token, row.generation) == (seen.token, seen.generation) and row.state in _ACTIVE
                if same and (dead or row.expires_ms <= self._now(tx)):
                    self._lose(tx, row, why)
                    taken.append(row.id)
        return taken

    def _open(self, tx: Connection, item: str, move: str) -> Any:
        """The row of an item that no worker has and that is not done. Raises UsageError."""
        row = self._row(tx, item)
        if row.state in (*_ACTIVE, ItemState.DONE):
            raise UsageError(f"the item {item} cannot {move}", why=f"it is {row.state}")
        return row

    # --- moves ----------------------------------------------------------------------------------------------

    def _fenced(self, tx: Connection, claim: Claim) -> Any:
        """The item's row while the newest claim on it is this one. Raises ClaimLost."""
        row = self._row(tx, claim.item.id)
        if (row.token, row.generation) != (claim.token, claim.generation):
            raise _lost(claim, f"it is {row.state}, in generation {row.generation}")
        return row

    def _lose(self, tx: Connection, row: Any, why: str) -> None:
        losses = row.losses + 1
        state = ItemState.READY if losses < self._max_losses else ItemState.FAILED
        reason = why if state is ItemState.READY else self._loss(why, losses)
        self._move(tx, row, state, reason, token="", losses=losses, not_before_ms=0)
        self._end_attempt(tx, row, LOST)

    def _loss(self, why: str, number: int) -> str:
        return f"{why}; that was loss {number} of {self._max_losses}"

    def _unblock(self, tx: Connection, done: str) -> None:
        waiting = (
            select(ITEM)
            .join(DEPENDENCY, DEPENDENCY.c.item == ITEM.c.id)
            .where(DEPENDENCY.c.needs == done, ITEM.c.state == ItemState.BLOCKED.value)
            .order_by(ITEM.c.position)
        )
        for row in tx.execute(waiting).all():
            if not self._waits(tx, row.id):
                self._move(tx, row, ItemState.READY, f"{done} is done", reason=row.reason)

    def _move(self, tx: Connection, row: Any, state: ItemState, why: str, **values: Any) -> None:
        """Write an item's new state and say so in the log. `why` becomes its reason, unless one is given."""
        self._update(tx, row.id, state=state.value, **({"reason": why} | values))
        data = {"old": row.state, "new": state.value, "reason": why}
        run = row.run if row.state in _OWNED else ""  # what people do between runs belongs to none
        self._audit.append(Kind.ITEM_STATE, data, item=row.id, run=run, tx=tx)

    def _update(self, tx: Connection, item: str, **values: Any) -> None:
        tx.execute(ITEM.update().where(ITEM.c.id == item).values(updated_ms=self._now(tx), **values))

    def _end_attempt(self, tx: Connection, row: Any, outcome: str) -> None:
        mine = _attempt(row.id, row.generation)
        tx.execute(ATTEMPT.update().where(mine).values(ended_ms=self._now(tx), outcome=str(outcome)))

    def _waits(self, tx: Connection, item: str) -> bool:
        open_ones = (
            select(ITEM.c.id)
            .join(DEPENDENCY, DEPENDENCY.c.needs == ITEM.c.id)
            .where(DEPENDENCY.c.item == item, ITEM.c.state != ItemState.DONE.value)
        )
        wanted = select(WANTED.c.key).where(WANTED.c.item == item)
        return bool(tx.execute(select(exists(open_ones) | exists(wanted))).scalar_one())

    def _row(self, tx: Connection, item: str) -> Any:
        row = tx.execute(select(ITEM).where(ITEM.c.id == item)).one_or_none()
        if row is None:
            raise UsageError(f"there is no item {item!r}", next="agent-harness queue list")
        return row

    def _load(self, tx: Connection, item: str) -> Item:
        return load(tx, [self._row(tx, item)])[0]

    def _now(self, tx: Connection) -> int:
        return self._store.database_ms(tx) or self.clock.now_ms()


def _attempt(item: str, generation: int) -> ColumnElement[bool]:
    return (ATTEMPT.c.item == item) & (ATTEMPT.c.generation == generation)


def _lost(claim: Claim, why: str) -> ClaimLost:
    return ClaimLost(f"the claim on {claim.item.id} (generation {claim.generation}) is lost", why=why)
