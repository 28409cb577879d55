"""Routes: the ways to a model, and which of them are parked."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Self

from agent_harness.config import RouteSettings
from agent_harness.errors import ConfigError, HarnessError, ModelFault, ModelFaultKind
from agent_harness.models.pricing import Price, PriceTable
from agent_harness.ports import Clock

_CHARS = 4


@dataclass(frozen=True, slots=True)
class Route:
    """One way to one model. It holds the name of the key's environment variable, never the key."""

    name: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    price: Price | None = None
    max_output_tokens: int = 8192
    timeout_s: float = 300.0
    history_tokens: int = 25_000
    allow_unpriced: bool = False

    @classmethod
    def configured(cls, name: str, settings: RouteSettings) -> Self:
        """A route as the configuration has it."""
        same = settings.model_dump(exclude={"price", "protocol"})
        usd = settings.price
        return cls(name, price=Price.of(usd.model_dump()) if usd else None, **same)

    @property
    def endpoint(self) -> str:
        """What a rejection holds for: this key at this server for this model."""
        return f"{self.base_url or ''} {self.model} {self.api_key_env or ''}"


def history_chars(routes: Iterable[Route], table: PriceTable) -> int:
    """Characters of a history from which old outputs in it are elided, for the narrowest of a role's routes; 0: never.
    A token is taken for four of them, and half of a model's context is left for what that is wrong by."""
    most = (min(one.history_tokens, table.contexts.get(one.model, 2 * one.history_tokens) // 2) for one in routes)
    return _CHARS * min(filter(None, most), default=0)


@dataclass(frozen=True, slots=True)
class Rate:
    """What a route charges and where that is known from: `route`, the table's digest, or `unpriced`."""

    price: Price | None
    source: str

    @classmethod
    def of(cls, route: Route, table: PriceTable) -> Self:
        """The route's own price, else the table's for the provider's own endpoint.

        Raises ConfigError where neither knows it and the route does not allow that."""
        if route.price is not None:
            return cls(route.price, "route")
        known = table.find(route.model) if route.base_url is None else None
        if known is not None:
            return cls(known, table.digest)
        if route.allow_unpriced:
            return cls(None, "unpriced")
        there = " at its base_url" if route.base_url else ""
        near = get_close_matches(route.model, table.prices, 1) if not route.base_url else []
        raise ConfigError(
            f"route {route.name}: the price of {route.model}{there} is not known",
            why=f"the nearest that is known is {near[0]}" if near else "",
            next=f"set routes.{route.name}.price = {{input = ..., output = ...}} in US dollars per million tokens, or "
            f"routes.{route.name}.allow_unpriced = true (then steps, tokens and seconds alone bound it)",
        )


def kind_of(fault: HarnessError) -> ModelFaultKind:
    """What a route's fault means. A key that is not there is refused before it is sent."""
    return fault.kind if isinstance(fault, ModelFault) else ModelFaultKind.AUTH


class Parking:
    """Endpoints that refused for longer than a burst, per role: one role's rejection never silences another.

    A spend cap parks until its Retry-After has passed or else for `cap_s`; a refused key for the life of this object.
    """

    def __init__(self, clock: Clock, cap_s: float = 900.0) -> None:
        self._clock, self._cap_s = clock, cap_s
        self._lock = threading.Lock()
        self._parked: dict[tuple[str, str], tuple[float, HarnessError]] = {}

    def park(self, route: Route, role: str, fault: HarnessError) -> None:
        """Park where the fault is a cap or a refused key; do nothing for any other."""
        kind = kind_of(fault)
        seconds = inf if kind is ModelFaultKind.AUTH else getattr(fault, "retry_after_s", None) or self._cap_s
        if kind in {ModelFaultKind.CAP, ModelFaultKind.AUTH}:
            with self._lock:
                self._parked[route.endpoint, role] = (self._clock.monotonic() + seconds, fault)

    def fault(self, route: Route, role: str) -> HarnessError | None:
        """Why the route is parked for this role, or None."""
        with self._lock:
            until, fault = self._parked.get((route.endpoint, role), (0.0, None))
        return fault if until > self._clock.monotonic() else None
