"""The conversation's own rules, held before each call: a history that breaks one poisons every later request."""

from collections.abc import Sequence

from agent_harness.types import Message
from agent_harness.types.text import is_clean


class HistoryCheck:
    """Checks what was added since the last call; a history only grows."""

    def __init__(self) -> None:
        self._checked = 0
        self._last: Message | None = None
        self._ids: set[str] = set()

    def check(self, history: Sequence[Message]) -> None:
        """Raise ValueError where a message carries control characters or lone surrogates, a tool call id is used
        twice, or a call has not exactly one result, in order, directly after it."""
        if self._checked and (len(history) < self._checked or history[self._checked - 1] is not self._last):
            raise ValueError("the history was rewritten; it may only grow")
        open_ids: list[str] = []
        for number, message in enumerate(history[self._checked :], self._checked):
            open_ids = self._one(number, message, open_ids)
        if open_ids:
            raise ValueError(f"history ends with tool calls that have no result: {', '.join(open_ids)}")
        self._checked, self._last = len(history), history[-1] if history else None

    def _one(self, number: int, message: Message, open_ids: list[str]) -> list[str]:
        texts = (message.content, *(call.arguments for call in message.tool_calls))
        if not all(map(is_clean, texts)):
            raise ValueError(f"history message {number} holds control characters or lone surrogates")
        if message.role == "tool":
            if not open_ids or open_ids[0] != message.tool_call_id:
                raise ValueError(f"history message {number} answers {message.tool_call_id!r}, which is not next")
            return open_ids[1:]
        if open_ids:
            raise ValueError(f"history message {number} comes before the results of: {', '.join(open_ids)}")
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) != len(ids) or self._ids.intersection(ids):
            raise ValueError(f"history message {number} uses a tool call id twice")
        self._ids.update(ids)
        return ids
