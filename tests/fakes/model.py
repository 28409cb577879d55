"""A scripted model, and a budget that holds its ceilings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from agent_harness.errors import LimitReached
from agent_harness.ports import Budget, Clock
from agent_harness.types import Finish, Limits, Message, ModelRequest, Reply, Spend, ToolCall, Usage

Step = Reply | Exception | Callable[[ModelRequest], Reply]
COST = Spend(1, 110, 1_000_000)


def call(name: str, id: str = "c", **arguments: Any) -> ToolCall:
    """A tool call with good JSON."""
    return ToolCall(id, name, json.dumps(arguments))


def bash(command: str, id: str = "c") -> ToolCall:
    return call("bash", id, command=command)


def says(*calls: ToolCall, text: str = "", finish: Finish | None = None) -> Reply:
    """A reply with these calls."""
    done = finish or (Finish.TOOLS if calls else Finish.STOP)
    return Reply(Message("assistant", text, calls), done, Usage(100, 10), "fake")


class FakeModel:
    """Port Model: charges every answer, then gives the next of its script. Keeps the requests it was sent."""

    def __init__(self, script: Iterable[Step]) -> None:
        self._script = iter(script)
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest, budget: Budget) -> Reply:
        ticket = budget.reserve(COST)
        self.requests.append(request)
        step = next(self._script, None)
        if step is None:
            raise AssertionError("the scripted model was asked once more than it has answers")
        budget.settle(ticket, COST)
        if isinstance(step, Exception):
            raise step
        return step(request) if callable(step) else step


class FakeBudget:
    """Port Budget, without parents."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._end = clock.monotonic() + limits.seconds
        self._spent = Spend()

    def reserve(self, worst: Spend) -> int:
        after, most = self._spent + worst, self._limits
        for name, used, ceiling in (
            ("steps", after.steps, most.steps),
            ("tokens", after.tokens, most.tokens),
            ("spend", after.nanousd, most.nanousd),
        ):
            if used > ceiling:
                raise LimitReached(name, "role", f"{name} would pass {ceiling}")
        return 1

    def settle(self, ticket: int, actual: Spend) -> None:
        self._spent = self._spent + actual

    def spent(self) -> Spend:
        return self._spent

    def seconds_left(self) -> float:
        return max(0.0, self._end - self._clock.monotonic())
