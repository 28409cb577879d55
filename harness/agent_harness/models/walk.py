"""One walk over a chain of routes: what each said, who may be asked again and when, and who speaks at the end."""

from __future__ import annotations

from agent_harness.errors import CredentialError, HarnessError, ModelFault, ModelFaultKind
from agent_harness.models.routes import Route
from agent_harness.ports import Clock

_AGAIN = {ModelFaultKind.RETRY, ModelFaultKind.MALFORMED}
_WORTH = [
    ModelFaultKind.RETRY,
    ModelFaultKind.MALFORMED,
    ModelFaultKind.CONTEXT,
    ModelFaultKind.CAP,
    ModelFaultKind.FILTERED,
    ModelFaultKind.REFUSED,
    ModelFaultKind.AUTH,
]
"""Which fault speaks for a chain that gave no answer: the most hopeful first."""


class Walk:
    """The state of one `complete`. Only the latest answer of a route counts, its Retry-After included."""

    def __init__(self, role: str, clock: Clock) -> None:
        self._role, self._clock = role, clock
        self._faults: dict[str, HarnessError] = {}
        self._ready: dict[str, float] = {}

    def note(self, route: Route, fault: HarnessError) -> None:
        """Keep what a route answered."""
        self._faults[route.name] = fault
        wish = getattr(fault, "retry_after_s", None) or 0.0
        self._ready[route.name] = self._clock.monotonic() + wish if wish else 0.0

    def closed(self, route: Route) -> bool:
        """Whether the route is not to be asked again in this walk."""
        fault = self._faults.get(route.name)
        return fault is not None and _kind(fault) not in _AGAIN

    def wait_of(self, route: Route) -> float:
        """Seconds until the time that the route named itself, 0 where it named none or it has come."""
        return max(0.0, self._ready.get(route.name, 0.0) - self._clock.monotonic())

    def verdict(self, retry_after_s: float | None = None) -> HarnessError:
        """The error for a chain that gave no answer. `retry_after_s` is the wait that was too long to make."""
        faults = self._faults
        kind = min((_kind(fault) for fault in faults.values()), key=_WORTH.index)
        why = "; ".join(f"{name}: {_without_next(fault)}" for name, fault in faults.items())
        speaker = next(fault for fault in faults.values() if _kind(fault) is kind)
        what = f"no route of the {self._role} gave an answer"
        if kind is ModelFaultKind.AUTH:
            return CredentialError(what, why=why, next=speaker.next)
        if retry_after_s is None and kind not in _AGAIN:
            retry_after_s = getattr(speaker, "retry_after_s", None)
        elif retry_after_s is None:
            waits = [
                ready - self._clock.monotonic() for name, ready in self._ready.items() if _kind(faults[name]) in _AGAIN
            ]
            retry_after_s = min(waits) if min(waits) > 0 else None
        return ModelFault(kind, what, why=why, next=speaker.next, retry_after_s=retry_after_s)


def _kind(fault: HarnessError) -> ModelFaultKind:
    return fault.kind if isinstance(fault, ModelFault) else ModelFaultKind.AUTH


def _without_next(fault: HarnessError) -> str:
    return fault.what + (f": {fault.why}" if fault.why else "")
