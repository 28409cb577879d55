"""One walk over a chain of routes: what each said, who may be asked again and when, and who speaks at the end."""

from agent_harness.errors import CredentialError, HarnessError, ModelFault, ModelFaultKind
from agent_harness.models.routes import Route, kind_of
from agent_harness.ports import Clock

_AGAIN = {ModelFaultKind.RETRY, ModelFaultKind.MALFORMED}
_WORTH = list(ModelFaultKind)
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
        return fault is not None and kind_of(fault) not in _AGAIN

    def wait_of(self, route: Route) -> float:
        """Seconds until the time that the route named itself, 0 where it named none or it has come."""
        return max(0.0, self._ready.get(route.name, 0.0) - self._clock.monotonic())

    def verdict(self, retry_after_s: float | None = None) -> HarnessError:
        """The error for a chain that gave no answer. `retry_after_s` is the wait that was too long to make."""
        faults = self._faults
        speaker = min(faults.values(), key=lambda fault: _WORTH.index(kind_of(fault)))
        kind = kind_of(speaker)
        why = "; ".join(f"{name}: {fault.told}" for name, fault in faults.items())
        what = f"no route of the {self._role} gave an answer"
        if kind is ModelFaultKind.AUTH:
            return CredentialError(what, why=why, next=speaker.next)
        if retry_after_s is None and kind not in _AGAIN:
            retry_after_s = getattr(speaker, "retry_after_s", None)
        elif retry_after_s is None:
            ready = min(self._ready[name] for name, fault in faults.items() if kind_of(fault) in _AGAIN)
            left = ready - self._clock.monotonic()
            retry_after_s = left if left > 0 else None
        return ModelFault(kind, what, why=why, next=speaker.next, retry_after_s=retry_after_s)
