"""The client: what a role run talks to.

One call of `complete` walks the role's routes in order; the whole chain is tried before anything waits. It is the one
owner of retries. Around each attempt: the worst case is reserved, the intent is recorded, the transport is called
under a deadline of our own, the cost is charged, the answer is recorded.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_harness.errors import (
    Cancelled,
    ConfigError,
    CredentialError,
    HarnessError,
    LimitReached,
    ModelFault,
    ModelFaultKind,
    ReplayDrift,
)
from agent_harness.models.bounds import InputBounds
from agent_harness.models.deadline import Late, within
from agent_harness.models.pricing import PriceTable, cost, worst_cost
from agent_harness.models.records import CallLog
from agent_harness.models.routes import Parking, Rate, Route
from agent_harness.models.walk import Walk
from agent_harness.ports import Budget, Clock, Recorder, Transport
from agent_harness.types import ModelRequest, Reply, Spend, Usage

__all__ = ["ModelClient", "Patience", "Route"]

LEAST_OUTPUT = 256
"""An output cap below this is not worth a call: the budget is used up then."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the chain is walked, and the waits between. A wait longer than `longest_s` gives the item back.
    `grace_s` is what a transport gets beyond its own timeout before it is left behind.
    Share `parking` between clients so that one learns from another's rejections."""

    tries: int = 3
    first_s: float = 1.0
    longest_s: float = 60.0
    grace_s: float = 2.0
    parking: Parking | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    route: Route
    transport: Transport
    rate: Rate


class ModelClient:
    """The port Model over a role's routes. Raises ConfigError at once for a route whose price is not known."""

    def __init__(
        self,
        routes: Sequence[Route],
        transports: Callable[[Route], Transport],
        *,
        recorder: Recorder,
        clock: Clock,
        prices: PriceTable,
        redact: Callable[[str], str],
        stop: threading.Event | None = None,
        patience: Patience | None = None,
    ) -> None:
        if not routes:
            raise ConfigError("a model is asked for and there is no route", next="add a [routes.NAME] with its model")
        self._ways = [_Way(route, transports(route), Rate.of(route, prices)) for route in routes]
        self._clock, self._stop = clock, stop or threading.Event()
        self._log = CallLog(recorder, redact)
        self._patience = patience or Patience()
        self._parking = self._patience.parking or Parking(clock)
        self._bounds = InputBounds()

    def complete(self, request: ModelRequest, budget: Budget) -> Reply:
        """One answer. See the port."""
        walk = Walk(request.role, self._clock)
        for tried in range(1, self._patience.tries + 1):
            for way in self._ways:
                if walk.closed(way.route) or walk.wait_of(way.route) > 0:
                    continue
                fault = self._parking.fault(way.route, request.role)
                if fault is None:
                    try:
                        return self._attempt(way, request, budget)
                    except ReplayDrift:
                        raise  # no other route can answer for a recording
                    except (ModelFault, CredentialError) as error:
                        fault = error
                        self._parking.park(way.route, request.role, fault)
                walk.note(way.route, fault)
            waiting = [way for way in self._ways if not walk.closed(way.route)]
            if tried == self._patience.tries or not waiting:
                break
            self._pause(walk, waiting, tried, budget)
        raise walk.verdict()

    def _attempt(self, way: _Way, request: ModelRequest, budget: Budget) -> Reply:
        request, worst, ticket = self._reserve(way, request, budget)
        spend = Spend()
        try:
            call = self._log.asked(way.route, request, worst)
            spend = worst  # of a call whose end nobody understands: what a transport did not foresee may have been paid
            started, timeout = self._clock.monotonic(), min(way.route.timeout_s, budget.seconds_left())
            try:
                most = min(timeout + self._patience.grace_s, budget.seconds_left())
                reply = within(most, lambda: way.transport.send(request, timeout), self._stop)
            except (ModelFault, CredentialError, Cancelled) as fault:
                seconds = self._clock.monotonic() - started
                usage = _used(fault, request, worst, late=seconds >= timeout)
                spend = Spend(0, usage.total, self._price(way, usage, None)[0]) if usage else Spend()
                self._log.failed(call, fault, usage, spend, seconds)
                raise
            seconds = self._clock.monotonic() - started
            nanousd, source = self._price(way, reply.usage, reply.nanousd)
            spend = Spend(1, reply.usage.total, nanousd)
        finally:
            budget.settle(ticket, spend)
        self._bounds.learn(way.route, request, reply)
        self._log.answered(call, reply, {"nanousd": nanousd, "prices": source, "seconds": seconds}, way.rate.price)
        return reply

    def _reserve(self, way: _Way, request: ModelRequest, budget: Budget) -> tuple[ModelRequest, Spend, int]:
        """Reserve the worst case; where only less output fits, ask for less, down to LEAST_OUTPUT tokens."""
        size = self._bounds.of(way.route, request)
        cap = min(request.max_output_tokens, way.route.max_output_tokens) or way.route.max_output_tokens
        while True:
            money = worst_cost(size, cap, way.rate.price) if way.rate.price else 0
            worst = Spend(1, size + cap, money)
            try:
                ticket = budget.reserve(worst)
            except LimitReached as limit:
                if limit.limit not in {"tokens", "spend"} or cap <= LEAST_OUTPUT:
                    raise
                cap = max(LEAST_OUTPUT, cap // 2)
            else:
                return replace(request, max_output_tokens=cap), worst, ticket

    def _price(self, way: _Way, usage: Usage, reported: int | None) -> tuple[int, str]:
        """Nano-dollars and where they are known from. What the provider says it charged wins."""
        if reported is not None:
            return reported, "provider"
        return (cost(usage, way.rate.price) if way.rate.price else 0), way.rate.source

    def _pause(self, walk: Walk, waiting: Sequence[_Way], tried: int, budget: Budget) -> None:
        """Wait for the first route that may be asked again; a route that named no time may be after a backoff."""
        named = [walk.wait_of(way.route) for way in waiting]
        if min(named) > 0:
            seconds = min(named) + random.uniform(0, min(1.0, min(named) / 10))  # noqa: S311  (not all at once)
        else:
            seconds = random.uniform(0, self._patience.first_s * 2 ** (tried - 1))  # noqa: S311  (full jitter)
        if seconds > self._patience.longest_s or seconds >= budget.seconds_left():
            raise walk.verdict(seconds)
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            if self._stop.is_set():
                raise Cancelled("the wait for the model was ended because the run was cancelled")
            self._clock.sleep(min(left, 0.5))


def _used(fault: HarnessError, request: ModelRequest, worst: Spend, *, late: bool) -> Usage | None:
    """What a call that brought nothing is charged for: what the provider said, or the most it can be, as it was
    reserved, where its answer could not be read or nobody waited for it any more: a ceiling is never passed by what
    is not known."""
    billed = isinstance(fault, Cancelled)
    if isinstance(fault, ModelFault):
        if fault.usage is not None:
            return fault.usage
        billed = late or isinstance(fault, Late) or fault.kind is ModelFaultKind.MALFORMED
    most = Usage(worst.tokens - request.max_output_tokens, request.max_output_tokens, counted=True)
    return most if billed else None
