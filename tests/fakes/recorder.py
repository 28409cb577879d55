"""An audit log in memory, and a clock that moves when told to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_harness.errors import AuditError
from agent_harness.types import Event, digest


class FakeRecorder:
    """Port Recorder. `refuse` names a kind that cannot be written."""

    def __init__(self, refuse: str = "") -> None:
        self.events: list[Event] = []
        self.bodies: dict[str, bytes] = {}
        self._refuse = refuse

    def event(self, kind: str, data: Mapping[str, Any], bodies: Mapping[str, str | bytes] | None = None) -> Event:
        if kind == self._refuse:
            raise AuditError("the log cannot be written")
        held = dict(data)
        for name, body in (bodies or {}).items():
            raw = body.encode() if isinstance(body, str) else body
            held[name] = digest(raw)
            self.bodies[held[name]] = raw
        event = Event(len(self.events) + 1, 0, str(kind), "item", "run", held, "")
        self.events.append(event)
        return event

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.data) for event in self.events if event.kind == kind]


class FakeClock:
    """Port Clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
