"""A clock that the test owns."""

from __future__ import annotations


class FakeClock:
    """Implements `ports.Clock`. Waiting passes time at once."""

    def __init__(self, wall_s: float = 1_700_000_000.0) -> None:
        self._wall_s = wall_s
        self._steady_s = 1000.0

    def now_ms(self) -> int:
        return round(self._wall_s * 1000)

    def monotonic(self) -> float:
        return self._steady_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall_s += seconds
        self._steady_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as a correction or a suspended machine does."""
        self._wall_s += seconds
