"""Notices a run that goes round in circles."""

import re
from collections.abc import Sequence

from agent_harness.types import digest

WARN, STOP = 3, 6
_LONGEST_CIRCLE = 3
_VARIES = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:s|ms|sec|seconds?|minutes?)\b|\b\d\d:\d\d:\d\d(?:[.,]\d+)?|\b0x[0-9a-f]{6,}\b"
    r"|\b\d+ bytes cut; whole output: \S+"
)
"""What no two runs of one command have in common: durations, times of day, addresses, our own name of the file."""
_WAITS = re.compile(r"^\s*(?:sleep|tail|wait)\b")


class LoopGuard:
    """Counts how often in a row the same turn, or the same circle of up to three turns, was seen.

    A turn is its actions with what they showed; what varies by itself is left out, so that a test run repeated for
    nothing counts. A command that only waits is compared exactly: waiting while something moves is no circle."""

    def __init__(self) -> None:
        self._turns: list[str] = []

    def saw(self, actions: Sequence[str], observations: Sequence[str]) -> int:
        """Note a turn; returns how many times in a row it, or a circle it closes, has been seen (1: new)."""
        shown = "\0".join(observations)
        if not any(_WAITS.match(action) for action in actions):
            shown = _VARIES.sub("", shown)
        self._turns.append(digest("\0".join(actions) + "\1" + shown))
        del self._turns[: -_LONGEST_CIRCLE * STOP]
        return max(self._repeats(size) for size in range(1, _LONGEST_CIRCLE + 1))

    def _repeats(self, size: int) -> int:
        last = self._turns[-size:]
        count, end = 0, len(self._turns)
        while end >= size and self._turns[end - size : end] == last:
            count, end = count + 1, end - size
        return count
