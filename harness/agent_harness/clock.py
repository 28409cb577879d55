"""The machine's own time. Tests own theirs: every part takes a Clock and never reads the time itself."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `ports.Clock`."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; may jump."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; a negative time is none."""
        time.sleep(max(0.0, seconds))
