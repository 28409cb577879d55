"""Old observations give way to one line each: seldom, and many at once.

A provider's cache holds a history for as long as its beginning stays as it is, so each step costs the price of all
that follows it, once. What is sent is a function of the history alone: between two steps it only grows, and a replay
steps where the recording did. The task, the model's own words, results of edits and refusals are never touched.
"""

from collections.abc import Sequence

from agent_harness.types import Message

LEAST = 1000
"""Bytes of an output that is worth it: all longer ones are kept in a file of the sandbox from the start."""
NEWEST = 3
"""Messages with observations that always stay whole."""


class Elision:
    """What of a run's history is sent. `above`: characters of it from which a step is made (0: none ever is).

    A step leaves the newest observations whole, an eighth of `above`, and is made only where it frees a fourth."""

    def __init__(self, above: int) -> None:
        self._above = above
        self._short: dict[Message, Message] = {}
        self._upto = 0

    def note(self, whole: Sequence[Message], short: Sequence[Message]) -> None:
        """Results as they are shown at first, and what may stand for them later: the first that was named for a text,
        over text the same one may come again."""
        for one, other in zip(whole, short, strict=True):
            if other != one:
                self._short.setdefault(one, other)

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        """The messages to send for a history, which has to be the last one's or to go on from it."""
        sent = self._shown(history, self._upto)
        if self._above and sum(map(_size, sent)) > self._above:
            upto = self._newest(history)
            fewer = self._shown(history, upto)
            if sum(map(_size, sent)) - sum(map(_size, fewer)) >= self._above // 4:
                self._upto, sent = upto, fewer
        return sent

    def _shown(self, history: Sequence[Message], upto: int) -> tuple[Message, ...]:
        return (*(self._short.get(message, message) for message in history[:upto]), *history[upto:])

    def _newest(self, history: Sequence[Message]) -> int:
        """Where the part begins that stays whole."""
        kept = count = 0
        for index in range(len(history) - 1, self._upto - 1, -1):
            if history[index] not in self._short:
                continue
            count, kept = count + 1, kept + _size(history[index])
            if count > NEWEST and kept > self._above // 8:
                return index + 1
        return self._upto


def _size(message: Message) -> int:
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
