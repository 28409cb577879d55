"""How many input tokens a call can have at most, before it is made.

A token of a byte-level vocabulary covers at least one byte, so bytes are a bound: a wide one. After the first answer
of a conversation the provider's own count of all that came before is known, and only what is new is bounded by bytes.
"""

from agent_harness.models.routes import Route
from agent_harness.types import Message, ModelRequest, Reply, canonical

_MESSAGE = 16
"""Tokens of a provider's own marks around one message or tool call."""

_HIDDEN = 1024
"""Tokens that a provider adds of its own: its instructions for tools."""


class InputBounds:
    """The bound for each role's next call on each route."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[tuple[Message, ...], Reply, int]] = {}

    def of(self, route: Route, request: ModelRequest) -> int:
        """Tokens that the request's input can have at most on this route. Where the history does not go on from the
        last one's, all that was ever answered counts: thoughts among it go back with it, and stand in no message."""
        before, reply, written = self._known.get((route.name, request.role), ((), None, 0))
        new = request.messages[len(before) :]
        if reply is None or request.messages[: len(before)] != before:
            tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
            return _HIDDEN + len(canonical(tools).encode()) + sum(map(_bytes, request.messages)) + written
        marks = _MESSAGE * (1 + len(reply.message.tool_calls))
        return reply.usage.total + marks + sum(map(_bytes, new[new[:1] == (reply.message,) :]))

    def learn(self, route: Route, request: ModelRequest, reply: Reply) -> None:
        """Keep what the provider counted for this history and its answer."""
        _, _, written = self._known.get((route.name, request.role), ((), None, 0))
        self._known[route.name, request.role] = (request.messages, reply, written + reply.usage.output)


def _bytes(message: Message) -> int:
    texts = [message.content, message.tool_call_id]
    for call in message.tool_calls:
        texts += [call.id, call.name, call.arguments]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return size + _MESSAGE * (1 + len(message.tool_calls))
