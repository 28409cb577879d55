"""What is said to a model and what comes back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from agent_harness.types.base import JSON


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model asks for. `arguments` is the model's own text; the runner parses and validates it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation. `role` is system, user, assistant or tool."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""

    def as_json(self) -> dict[str, Any]:
        """The message as plain data, empty fields left out; `from_json` reads it back."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [asdict(call) for call in self.tool_calls]
        if self.tool_call_id:
            out["tool_call_id"] = self.tool_call_id
        return out

    @staticmethod
    def from_json(data: JSON) -> Message:
        """A message from what `as_json` gave."""
        calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in data.get("tool_calls", ()))
        return Message(data["role"], data["content"], calls, data.get("tool_call_id", ""))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JSON


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `input` counts all prompt tokens, those read from or written to a cache included."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    counted: bool = False
    """The provider named no usage: these are upper bounds, counted from the bytes."""

    @property
    def total(self) -> int:
        """Input plus output (reasoning is part of output)."""
        return self.input + self.output


class Finish(StrEnum):
    """Why the provider stopped writing."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call: the whole history, the tools, and the output cap in tokens. `role` is the role that asks."""

    role: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's answer. `nanousd` is the provider's own figure where it gives one, else None (not zero)."""

    message: Message
    finish: Finish
    usage: Usage
    model: str
    nanousd: int | None = None
