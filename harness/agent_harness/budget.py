"""Budgets: nested ceilings that hold, also for runs in parallel.

A call's worst case is reserved before it is made and what it really used is charged after. A reservation must fit
into the budget and into every budget above it, looked at under one lock for the whole tree. Seconds are not
reserved: they pass by themselves, from the moment a budget is made, by the monotonic clock.
"""

# ruff: noqa: SLF001  (the budgets of one tree are one thing)

from __future__ import annotations

import math
import threading

from agent_harness.errors import ConfigError, LimitReached
from agent_harness.ports import Clock
from agent_harness.types import Limits, Spend, dollars

_UNBOUNDED = Limits(1 << 62, 1 << 62, 1 << 62, math.inf)


class Budget:
    """One scope's ceilings inside its parent's. Make the root as a `Ledger`, the others by `child`."""

    def __init__(self, tree: _Tree, parent: Budget | None, scope: str, limits: Limits, spent: Spend) -> None:
        _check(scope, limits)
        self.scope, self.limits = scope, limits
        self._tree = tree
        self._line: tuple[Budget, ...] = (self, *(parent._line if parent else ()))
        self._spent, self._held = spent, Spend()
        self._started = tree.clock.monotonic()

    def child(self, scope: str, limits: Limits, *, spent: Spend | None = None) -> Budget:
        """A budget inside this one. `spent` is what its scope used before (a resumed run); it counts here only,
        because the parent was charged with it then."""
        return Budget(self._tree, self, scope, limits, spent or Spend())

    def reserve(self, worst: Spend) -> int:
        """Take the worst case of the next call out of this budget and all above it; returns a ticket.

        Raises LimitReached, with nothing taken, where any ceiling could be passed or a deadline has."""
        with self._tree.lock:
            for budget in self._line:
                budget._refuse_beyond(worst)
            for budget in self._line:
                budget._held += worst
            return self._tree.open_ticket(self, worst)

    def settle(self, ticket: int, actual: Spend) -> None:
        """Give the reservation back and charge what was used. A second time for one ticket is a ValueError."""
        with self._tree.lock:
            worst = self._tree.close_ticket(self, ticket)
            for budget in self._line:
                budget._held -= worst
                budget._spent += actual

    def spent(self) -> Spend:
        """What was charged so far, open reservations not counted."""
        with self._tree.lock:
            return self._spent

    def seconds_left(self) -> float:
        """Seconds until the first deadline of this budget and those above it, 0 when passed."""
        return max(0.0, min(budget._left() for budget in self._line))

    def _left(self) -> float:
        return self.limits.seconds - (self._tree.clock.monotonic() - self._started)

    def _refuse_beyond(self, worst: Spend) -> None:
        if self._left() <= 0:
            raise self._reached("seconds", f"all {self.limits.seconds:g} s have passed")
        limits, used, after = self.limits, self._spent + self._held, self._spent + self._held + worst
        if after.steps > limits.steps:
            raise self._reached("steps", f"{used.steps} of {limits.steps} steps are used")
        if after.tokens > limits.tokens:
            text = f"{used.tokens} of {limits.tokens} tokens are used and the next call could take {worst.tokens}"
            raise self._reached("tokens", text)
        if after.nanousd > limits.nanousd:
            text = f"{dollars(used.nanousd)} of {dollars(limits.nanousd)} is used"
            raise self._reached("spend", f"{text} and the next call could cost {dollars(worst.nanousd)}")

    def _reached(self, limit: str, text: str) -> LimitReached:
        return LimitReached(
            limit,
            self.scope,
            f"the {limit} limit of {self.scope} is reached: {text}",
            next=f"raise the {limit} limit of {self.scope}, or split the work",
        )


class Ledger(Budget):
    """The root of a tree of budgets; without limits of its own it only ties them together. `spent` is what was used
    before this process: a resumed ledger goes on."""

    def __init__(
        self, clock: Clock, scope: str = "project", limits: Limits | None = None, *, spent: Spend | None = None
    ) -> None:
        super().__init__(_Tree(clock), None, scope, limits or _UNBOUNDED, spent or Spend())


class _Tree:
    """What all budgets of one tree share: the lock, the clock, the open tickets."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.lock = clock, threading.Lock()
        self._open: dict[int, tuple[Budget, Spend]] = {}
        self._last = 0

    def open_ticket(self, budget: Budget, worst: Spend) -> int:
        self._last += 1
        self._open[self._last] = (budget, worst)
        return self._last

    def close_ticket(self, budget: Budget, ticket: int) -> Spend:
        owner, worst = self._open.get(ticket, (None, Spend()))
        if owner is not budget:
            raise ValueError(f"ticket {ticket} of {budget.scope} is not open")
        del self._open[ticket]
        return worst


def _check(scope: str, limits: Limits) -> None:
    for name in ("steps", "tokens", "nanousd", "seconds"):
        value = getattr(limits, name)
        if not value > 0:
            raise ConfigError(
                f"the {'spend' if name == 'nanousd' else name} limit of {scope} is {value}",
                why="every limit must be more than 0",
                next="set it to what one may use at most",
            )
