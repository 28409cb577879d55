"""Budgets: nested ceilings that hold, also for runs in parallel.

A call's worst case is reserved before it is made and what it really used is charged after. A reservation must fit
into the budget and into every budget above it; where one of them refuses, none has taken anything. These objects
belong to one process; the topmost is a `spending.Purse`, whose figures stand in the store. Seconds are not reserved:
they pass by themselves, from the moment a budget is made, by the monotonic clock.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import Protocol

from agent_harness.errors import ConfigError, LimitReached
from agent_harness.ports import Clock
from agent_harness.types import Limits, Spend, dollars


class _Above(Protocol):
    """What a budget asks of the one that it stands in, as `ports.Budget` says it."""

    def reserve(self, worst: Spend) -> int: ...
    def settle(self, ticket: int, actual: Spend) -> None: ...
    def seconds_left(self) -> float: ...


class Budget:
    """One scope's ceilings, inside those of `above`. Safe for threads."""

    def __init__(self, clock: Clock, scope: str, limits: Limits, above: _Above | None = None) -> None:
        _check(scope, limits)
        self.scope, self.limits = scope, limits
        self._clock, self._above = clock, above
        self._lock, self._tickets = threading.Lock(), itertools.count(1)
        self._open: dict[int, tuple[Spend, int]] = {}
        self._spent, self._held = Spend(), Spend()
        self._started = clock.monotonic()

    def child(self, scope: str, limits: Limits) -> Budget:
        """A budget inside this one."""
        return Budget(self._clock, scope, limits, self)

    def reserve(self, worst: Spend) -> int:
        """Take the worst case of the next call out of this budget and all above it; returns a ticket.

        Raises LimitReached, with nothing taken, where any ceiling could be passed or a deadline has."""
        with self._lock:
            refuse_beyond(self.scope, self.limits, self._spent + self._held, worst, self._left())
            outer = self._above.reserve(worst) if self._above else 0
            ticket = next(self._tickets)
            self._open[ticket] = worst, outer
            self._held += worst
            return ticket

    def settle(self, ticket: int, actual: Spend) -> None:
        """Give the reservation back and charge what was used. A second time for one ticket is a ValueError."""
        with self._lock:
            if ticket not in self._open:
                raise ValueError(f"ticket {ticket} of {self.scope} is not open")
            worst, outer = self._open.pop(ticket)
            self._held -= worst
            self._spent += actual
        if self._above:
            self._above.settle(outer, actual)

    def spent(self) -> Spend:
        """What was charged so far, open reservations not counted."""
        with self._lock:
            return self._spent

    def seconds_left(self) -> float:
        """Seconds until the first deadline of this budget and those above it, 0 when passed."""
        return max(0.0, min(self._left(), self._above.seconds_left() if self._above else math.inf))

    def _left(self) -> float:
        return self.limits.seconds - (self._clock.monotonic() - self._started)


def fits(limits: Limits, spend: Spend) -> bool:
    """Whether no ceiling but that of time is passed."""
    return spend.steps <= limits.steps and spend.tokens <= limits.tokens and spend.nanousd <= limits.nanousd


def refuse_beyond(
    scope: str, limits: Limits, used: Spend, worst: Spend, seconds_left: float, *, next: str = ""
) -> None:
    """Raise LimitReached where `worst` more than what is `used` or held could pass a ceiling."""
    after = used + worst
    if seconds_left > 0 and fits(limits, after):
        return
    if seconds_left <= 0:
        reached, text = "seconds", f"all {limits.seconds:g} s have passed"
    elif after.steps > limits.steps:
        reached, text = "steps", f"{used.steps} of {limits.steps} steps are used"
    elif after.tokens > limits.tokens:
        text = f"{used.tokens} of {limits.tokens} tokens are used and the next call could take {worst.tokens}"
        reached = "tokens"
    else:
        text = f"{dollars(used.nanousd)} of {dollars(limits.nanousd)} is used"
        reached, text = "spend", f"{text} and the next call could cost {dollars(worst.nanousd)}"
    what = f"the {reached} limit of {scope} is reached: {text}"
    raise LimitReached(reached, scope, what, next=next or f"raise the {reached} limit of {scope}, or split the work")


def _check(scope: str, limits: Limits) -> None:
    """Raise ConfigError for a ceiling that is none."""
    for name in ("steps", "tokens", "nanousd", "seconds"):
        value = getattr(limits, name)
        if not value > 0:
            raise ConfigError(
                f"the {'spend' if name == 'nanousd' else name} limit of {scope} is {value}",
                why="every limit must be more than 0",
                next="set it to what one may use at most",
            )
