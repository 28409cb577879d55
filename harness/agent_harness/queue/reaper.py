"""Which claims have lost their worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent_harness.ports import Clock
from agent_harness.worker import alive

_JUMP_S = 30.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A claim to take back; `dead` when its process is known to be gone, else only its time ran out."""

    item: str
    token: str
    generation: int
    dead: bool
    why: str


class Reaper:
    """Judges claims. After the wall clock jumped (a suspended machine, a corrected clock) every claim looks expired,
    so for a while expiry proves nothing and only dead processes count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_s, self._steady_s = clock.now_ms() / 1000, clock.monotonic()
        self._trust_from = self._steady_s

    def suspects(self, claims: Iterable[Any], now_ms: int) -> list[Suspect]:
        """Those of the claimed rows whose worker is gone."""
        trusted = self._expiry_counts()
        found = []
        for row in claims:
            if alive(row.worker) is False:
                why = "its worker's process ended without settling it"
                found.append(Suspect(row.id, row.token, row.generation, dead=True, why=why))
            elif trusted and row.expires_ms <= now_ms:
                why = "its worker did not renew the claim in time"
                found.append(Suspect(row.id, row.token, row.generation, dead=False, why=why))
        return found

    def _expiry_counts(self) -> bool:
        wall, steady = self._clock.now_ms() / 1000, self._clock.monotonic()
        if abs((wall - self._wall_s) - (steady - self._steady_s)) > _JUMP_S:
            self._trust_from = steady + _PATIENCE_S
        self._wall_s, self._steady_s = wall, steady
        return steady >= self._trust_from
