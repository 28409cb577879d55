"""Which claims have lost their worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_harness.ports import Clock
from agent_harness.worker import alive

_JUMP_S = 30.0
_PATIENCE_S = 60.0


class Reaper:
    """Judges claims. After the wall clock jumped (a suspended machine, a corrected clock) every claim looks expired,
    so for a while expiry proves nothing and only dead processes count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_s, self._steady_s = clock.now_ms() / 1000, clock.monotonic()
        self._trust_from = self._steady_s

    def suspects(self, claims: Iterable[Any], now_ms: int) -> list[tuple[Any, bool, str]]:
        """Those of the claimed rows to take back: the row, whether its process is known to be gone (else only its time
        ran out), and why."""
        trusted, found = self._expiry_counts(), []
        for row in claims:
            if alive(row.worker) is False:
                found.append((row, True, "its worker's process ended without settling it"))
            elif trusted and row.expires_ms <= now_ms:
                found.append((row, False, "its worker did not renew the claim in time"))
        return found

    def _expiry_counts(self) -> bool:
        wall, steady = self._clock.now_ms() / 1000, self._clock.monotonic()
        if abs((wall - self._wall_s) - (steady - self._steady_s)) > _JUMP_S:
            self._trust_from = steady + _PATIENCE_S
        self._wall_s, self._steady_s = wall, steady
        return steady >= self._trust_from
