"""What the workers of one store may use together: ceilings that hold over threads, processes and hosts.

Reserving charges the worst case at once, in one short write transaction, and settling takes back what was not used.
So a worker that vanishes in between was charged its worst case already: nothing has to be found for that to be true.
The row of a reservation says whose it is, so that what is only held can be told from what is spent.

Neither write waits for the disk. The call's intent in the log does, before the call is made, and takes the
reservation along; a settlement lost with the power leaves the worst case standing.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import defaultdict
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, and_, bindparam, or_, select

from agent_harness.budget import Budget, fits, refuse_beyond
from agent_harness.config import BudgetSettings
from agent_harness.errors import LimitReached
from agent_harness.ports import Clock
from agent_harness.store import Store
from agent_harness.store.tables import BUDGET, RESERVATION
from agent_harness.types import Limits, Role, Spend
from agent_harness.worker import alive, this_worker

DAY_MS, SOON_MS = 86_400_000, 60_000
CALL_MS = 3_600_000
"""No call lasts longer: what a worker of another host has held for longer is given up for spent."""

_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m", "ever": "ever"}
_ZERO = {"steps": 0, "tokens": 0, "nanousd": 0, "ms": 0}
_ITEM = and_(BUDGET.c.scope == bindparam("key_item"), BUDGET.c.period == "")
_PROJECT = and_(BUDGET.c.scope == "", BUDGET.c.period == bindparam("key_period"))
# Made once: to build them takes longer than the database needs for them.
_READ = select(BUDGET).where(or_(_ITEM, _PROJECT))
_ADD = BUDGET.update().where(or_(_ITEM, _PROJECT)).values({n: BUDGET.c[n] + bindparam(f"more_{n}") for n in _ZERO})
_SETTLED = RESERVATION.delete().where(RESERVATION.c.id == bindparam("ticket"))


class Spending:
    """The project's budget, and the budgets of items and role runs inside it. Without `paid` (a replay) the project
    is not charged. `closed_ms` is 0, or from when on to try again after the project refused this process's last call.
    """

    def __init__(self, store: Store, clock: Clock, settings: BudgetSettings, *, paid: bool = True) -> None:
        self.store, self.clock, self.limits, self.paid = store, clock, settings.limits, paid
        self.worker, self.closed_ms = this_worker(), 0
        self._per = settings.per
        self._scope = "the project" + ("" if settings.per == "ever" else f"'s {settings.per}")
        self._runs: dict[str, Budget] = {}

    def budget(self, run: str, item: str, limits: Limits, role: Role) -> Budget:
        """A role run's budget, inside its item's, inside the project's. An item's steps, tokens and dollars are those
        of all its attempts since a person last asked for a retry; its seconds are those of this attempt."""
        if run not in self._runs:
            above = Purse(self, run, item, limits) if item or self.paid else None
            self._runs[run] = Budget(self.clock, f"item {item}" if item else "review", limits, above)
        return self._runs[run].child(f"role {role.name}", role.limits)

    def spent(self) -> defaultdict[str, Spend]:
        """What each item's attempts have used since a person last asked for a retry. A call without an end (its worker
        was killed, or it is under way) counts as the most it can be."""
        with self.store.read() as tx:
            rows = tx.execute(select(BUDGET).where(BUDGET.c.period == ""))
            return defaultdict(Spend, {row.scope: _spend(row) for row in rows})

    def need_room(self) -> None:
        """Raise LimitReached where the project has nothing left for any call."""
        with self.store.read() as tx:
            now, period = self.period(tx)
            self.check(tx, Spend(steps=1, tokens=1), now, period, _charged(tx, "", period).get(""))

    def recover(self) -> int:
        """Give up what vanished workers hold; it stays charged at its worst case. Returns how many calls that were."""
        with self.store.write(synced=False) as tx:
            old = self.period(tx)[0] - CALL_MS
            held = tx.execute(select(RESERVATION)).all()
            gone = [row.id for row in held if alive(row.worker) is False or row.at_ms < old]
            tx.execute(RESERVATION.delete().where(RESERVATION.c.id.in_(gone)))
            return len(gone)

    def period(self, tx: Connection) -> tuple[int, str]:
        """The time, by the clock that all workers share, and the name of the project's window that it lies in."""
        now = self.store.database_ms(tx) or self.clock.now_ms()
        return now, time.strftime(_PERIODS[self._per], time.gmtime(now // 1000))

    def check(self, tx: Connection, worst: Spend, now: int, period: str, charged: Any) -> float:
        """The seconds that the project has left. Raises LimitReached where it has no room for this call."""
        if not self.paid:
            return math.inf
        self.closed_ms = 0
        used, left = _spend(charged), self.limits.seconds - (int(charged.ms) / 1000 if charged else 0)
        hint = f"raise [budget] in harness.toml, or wait for the next {self._per}" if self._per != "ever" else ""
        try:
            refuse_beyond(self._scope, self.limits, used, worst, left, next=hint)
        except LimitReached:
            if fits(self.limits, worst):  # else no window will ever have room for it
                found = tx.execute(select(RESERVATION).where(RESERVATION.c.period == period))
                held = sum(map(_spend, found), Spend())
                soon = left > 0 and fits(self.limits, used - held + worst)
                self.closed_ms = now + SOON_MS if soon else (now // DAY_MS + 1) * DAY_MS
            raise
        return left


class Purse:
    """What of a run's budget stands in the store: all its item's attempts, and the project."""

    def __init__(self, spending: Spending, run: str, item: str, limits: Limits) -> None:
        self._all, self._run, self._item, self._limits = spending, run, item, limits
        self._open: dict[int, tuple[Spend, dict[str, str]]] = {}
        self._mark, self._left_s = spending.clock.monotonic(), spending.limits.seconds

    def reserve(self, worst: Spend) -> int:
        """Charge the worst case to the item and the project; returns a ticket. Raises LimitReached, nothing charged."""
        with self._all.store.write(synced=False) as tx:
            now, period = self._all.period(tx)
            key = {"item": self._item, "period": period if self._all.paid else ""}
            charged = _charged(tx, **key)
            if self._item:
                refuse_beyond(f"item {self._item}", self._limits, _spend(charged.get(self._item)), worst, math.inf)
            self._left_s = self._all.check(tx, worst, now, period, charged.get(""))
            rows = [{"scope": scope, "period": name} for scope, name in ((self._item, ""), ("", key["period"]))]
            if new := [row | _ZERO for row in rows if any(row.values()) and row["scope"] not in charged]:
                tx.execute(BUDGET.insert(), new)
            ticket = secrets.randbits(62)  # never given again, so that nobody settles another's
            whose = {"worker": self._all.worker, "run": self._run, "at_ms": now}
            tx.execute(RESERVATION.insert(), {"id": ticket, **key, **whose, **asdict(worst)})
            self._charge(tx, key, worst)
        self._open[ticket] = worst, key
        return ticket

    def settle(self, ticket: int, actual: Spend) -> None:
        """Take back what was not used; what was given up for lost in the meantime stays at its worst case."""
        worst, key = self._open.pop(ticket)
        with self._all.store.write(synced=False) as tx:
            found = tx.execute(_SETTLED, {"ticket": ticket}).rowcount
            self._charge(tx, key, actual - worst if found else Spend())

    def seconds_left(self) -> float:
        """What the project had left when last asked, less what has passed since."""
        return self._left_s - (self._all.clock.monotonic() - self._mark)

    def _charge(self, tx: Connection, key: dict[str, str], spend: Spend) -> None:
        passed_ms = int((self._all.clock.monotonic() - self._mark) * 1000)
        self._mark += passed_ms / 1000
        self._left_s -= passed_ms / 1000
        more = {f"more_{name}": value for name, value in asdict(spend).items()}
        tx.execute(_ADD, more | {"more_ms": passed_ms, "key_item": key["item"], "key_period": key["period"]})


def _charged(tx: Connection, item: str, period: str) -> dict[str, Any]:
    """The item's row and, under the empty name, the project's; those that are there."""
    return {row.scope: row for row in tx.execute(_READ, {"key_item": item, "key_period": period})}


def _spend(row: Any) -> Spend:
    return Spend(row.steps, row.tokens, row.nanousd) if row else Spend()
