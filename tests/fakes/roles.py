"""A role run with everything faked around it, and a plain loop to hold mini-swe-agent's against."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_harness.ports import Environment, Loop, LoopHost, Task, Termination, unscreened
from agent_harness.types import Limits, Message, Mode, RoleResult
from agent_harness_roles.runner import Runner
from fakes.model import FakeBudget, FakeModel, Step
from fakes.recorder import FakeClock, FakeRecorder
from fakes.sandbox import FakeSandbox

IMPLEMENTER = {"title": "Mend add", "brief": "add(1, 2) gives 4.", "checks": "pytest -q", "protected": "tests/**"}
DONE = {"outcome": "done", "summary": "add took one too many; it no longer does."}


class PlainLoop:
    """Port Loop in its simplest form."""

    def run(self, opening: Sequence[Message], host: LoopHost, max_malformed: int) -> bool:
        history, malformed = list(opening), 0
        while True:
            turn = host.ask(tuple(history))
            history.append(turn.message)
            if turn.problems:
                history += turn.problems
                malformed += 1
                if malformed >= max_malformed:
                    return False
                continue
            malformed = 0
            results, over = host.act(turn)
            history += results
            if over:
                return True


@dataclass
class RoleKit:
    """One role run over fakes; every field may be changed before `run`."""

    root: Path
    role: str = "implementer"
    variables: Mapping[str, str] = field(default_factory=lambda: dict(IMPLEMENTER))
    facts: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(50, 1_000_000, 10**12, 3600.0))
    loop: Loop = field(default_factory=PlainLoop)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    clock: FakeClock = field(default_factory=FakeClock)
    cancelled: threading.Event = field(default_factory=threading.Event)
    redact: Callable[[str], str] = str
    protocol: str = "tools"
    screen: Callable[[str], str] = unscreened
    observation_bytes: int = 6 << 10
    history_chars: int = 100_000
    folders: Path | None = None
    speaks: Callable[[Iterable[Step]], Any] = FakeModel
    sandbox: FakeSandbox = field(init=False)
    model: FakeModel = field(init=False)

    def __post_init__(self) -> None:
        self.sandbox = FakeSandbox(self.root, Mode.RW if self.role == "implementer" else Mode.RO)

    def run(self, *script: Step, steps: Iterable[Step] | None = None) -> RoleResult:
        runner = Runner(self.loop, self.folders)
        role = replace(runner.role(self.role), limits=self.limits)
        self.model = self.speaks(steps if steps is not None else script)
        environment = Environment(
            self.sandbox,
            self.model,
            self.recorder,
            self.clock,
            self.redact,
            observation_bytes=self.observation_bytes,
            history_chars=self.history_chars,
            protocol=self.protocol,
            screen=self.screen,
        )
        self.budget = FakeBudget(self.limits, self.clock)
        return runner.run(role, Task(self.variables, self.facts), environment, Termination(self.cancelled), self.budget)

    def told(self, request: int = -1) -> list[Message]:
        """The history of a request; the last one's when none is named."""
        return list(self.model.requests[request].messages)
