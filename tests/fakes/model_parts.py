"""A clock that only moves when asked, a recorder that keeps events in a list, and a transport that follows a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_harness.types import Event, Finish, Message, ModelRequest, Reply, ToolCall, Usage, digest


@dataclass
class FakeClock:
    """`sleep` moves it at once; `slept` are the waits that were asked for."""

    time: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


@dataclass
class ListRecorder:
    """The port Recorder over two plain containers. `broken` (an error) is raised instead of writing."""

    events: list[Event] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    broken: Exception | None = None

    def event(self, kind: str, data: Mapping[str, Any], bodies: Mapping[str, str | bytes] | None = None) -> Event:
        if self.broken:
            raise self.broken
        out = dict(data)
        for name, body in (bodies or {}).items():
            text = body if isinstance(body, str) else body.decode()
            out[name] = digest(text)
            self.bodies[out[name]] = text
        event = Event(len(self.events) + 1, 0, str(kind), "item", "run", out, "")
        self.events.append(event)
        return event

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]


def reply(content: str = "ok", *, calls: Sequence[ToolCall] = (), usage: Usage = Usage(100, 10), **more: Any) -> Reply:
    """A provider's answer."""
    finish = more.pop("finish", Finish.TOOLS if calls else Finish.STOP)
    return Reply(Message("assistant", content, tuple(calls)), finish, usage, more.pop("model", "m-1"), **more)


@dataclass
class ScriptedTransport:
    """The port Transport: each step is a Reply, an error to raise, or a callable of the request."""

    steps: list[Reply | Exception | Callable[[ModelRequest], Reply]]
    requests: list[ModelRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        self.requests.append(request)
        self.timeouts.append(timeout_s)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step(request) if callable(step) else step
