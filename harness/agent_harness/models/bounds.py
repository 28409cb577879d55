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
        self._known: dict[tuple[str, str], tuple[tuple[Message, ...], Reply]] = {}

    def of(self, route: Route, request: ModelRequest) -> int:
        """Tokens that the request's input can have at most on this route."""
        known = self._known.get((route.name, request.role))
        if known is None or request.messages[: len(known[0])] != known[0]:
            tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
            return _HIDDEN + len(canonical(tools).encode()) + sum(map(_bytes, request.messages))
        before, reply = known
        new = request.messages[len(before) :]
        if new[:1] == (reply.message,):
            marks = _MESSAGE * (1 + len(reply.message.tool_calls))
            return reply.usage.total + marks + sum(map(_bytes, new[1:]))
        return reply.usage.input + sum(map(_bytes, new))

    def learn(self, route: Route, request: ModelRequest, reply: Reply) -> None:
        """Keep what the provider counted for this history and its answer."""
        self._known[route.name, request.role] = (request.messages, reply)


def _bytes(message: Message) -> int:
    texts = [message.content, message.tool_call_id]
    for call in message.tool_calls:
        texts += [call.id, call.name, call.arguments]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return size + _MESSAGE * (1 + len(message.tool_calls))
