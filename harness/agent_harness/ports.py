"""The ports: what the core asks of the outside, as small Protocols. Fakes of them live in `tests/`.

roles, sandbox and adapters implement these and import nothing else of the core but types and errors.
"""

# pyright: reportReturnType=false
# (a Protocol's methods have a docstring for a body)

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agent_harness.types import (
    JSON,
    Command,
    CommandResult,
    Event,
    ImagePlan,
    Message,
    ModelRequest,
    Reply,
    Role,
    RoleResult,
    SandboxSpec,
    Spend,
    ToolCall,
)


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back; every duration and deadline uses these."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Recorder(Protocol):
    """Appends events of one item and run to the audit log. Durable when it returns; secrets are taken out first."""

    def event(self, kind: str, data: JSON, bodies: Mapping[str, str | bytes] | None = None) -> Event:
        """Append one event. Each of `bodies` is stored by content and its digest put into `data` under its name.

        Raises AuditError where it cannot be written; the caller then does not do what it announced."""


# --- models -------------------------------------------------------------------------------------------------


class Transport(Protocol):
    """One way to one model: a provider's wire, or a recording."""

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """One call, tried once. Raises ModelFault (never another library's error)."""


class Budget(Protocol):
    """A budget with its parents. `reserve` before, `settle` after: the ceilings hold also in parallel."""

    def reserve(self, worst: Spend) -> int:
        """Take the worst case of the next call out of this budget and all its parents; returns a ticket.

        Raises LimitReached, with nothing taken, when any of them could be passed."""

    def settle(self, ticket: int, actual: Spend) -> None:
        """Give the reservation back and charge what was really used (once per ticket)."""

    def spent(self) -> Spend:
        """What this budget was charged so far, open reservations not counted."""

    def seconds_left(self) -> float:
        """Seconds until the first of its deadlines, 0 when passed."""


class Model(Protocol):
    """A role's model: routes, retries, prices, records and charges. What a role run talks to."""

    def complete(self, request: ModelRequest, budget: Budget) -> Reply:
        """One answer, charged to the budget before anything reads it.

        Raises LimitReached before a call that could pass a ceiling, ModelFault or CredentialError when no route
        answered."""


# --- sandboxes ----------------------------------------------------------------------------------------------


class Sandbox(Protocol):
    """A started container. One command at a time; `close` ends it and is safe to repeat."""

    def execute(self, command: Command) -> CommandResult:
        """Run one command. Raises SandboxLost when the sandbox, not the command, failed."""

    def read_file(self, path: str, limit: int) -> bytes:
        """A regular file's bytes, following no link out of the workspace. Raises FileNotFoundError, ValueError
        (not a regular file, outside, or larger than `limit`) or SandboxLost."""

    def write_file(self, path: str, data: bytes) -> None:
        """Replace or create a file of the workspace, keeping an existing file's mode, making folders.

        Raises ValueError (outside the workspace, through a link, not a regular file), PermissionError in `ro`."""

    def describe(self) -> dict[str, Any]:
        """What runs: container id, image id, mode, limits. Goes into the log."""

    def close(self) -> None:
        """Kill everything inside and remove the container."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One property `doctor` tried: its name, whether it holds, what was seen, and how to mend it."""

    name: str
    ok: bool
    seen: str
    fix: str = ""


class SandboxEngine(Protocol):
    """Starts sandboxes."""

    def start(self, spec: SandboxSpec) -> Sandbox:
        """A probed sandbox. Raises SandboxUnavailable; leaves nothing behind then."""

    def room(self, dest: Path) -> None:
        """A workspace is about to be laid out at `dest`: a sandbox that waits may put its own empty folder there."""

    def image_id(self, image: str) -> str:
        """The content id of an image that is present. Raises SandboxUnavailable, saying how to get it."""

    def prepare(self, plan: ImagePlan, say: Callable[[str], None], stopped: Callable[[], bool]) -> str:
        """The content id of the image that a plan makes, from earlier work where nothing it depends on changed.

        Says each step before it. Raises SandboxUnavailable, ConfigError for what the tree asks for, Cancelled."""

    def reap(self) -> list[str]:
        """Remove containers whose owner process is gone; returns their names. Never those of a live owner."""

    def doctor(self, image: str) -> list[Finding]:
        """Try each promised property."""


class Warmable(Protocol):
    """An engine that can keep sandboxes started ahead."""

    def warm(self, size: int, folder: Path) -> None:
        """Keep up to `size` of them, on folders beneath this one."""


# --- the loop and the roles ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One model answer as the runner understood it. `problems` (never with `calls`) are the messages that go
    back to the model after a malformed answer, one result per tool call it made."""

    message: Message
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[Message, ...] = ()


class LoopHost(Protocol):
    """What a loop calls back. Both may raise; the loop lets everything through."""

    def ask(self, history: Sequence[Message]) -> Turn:
        """The model's next turn for this history."""

    def act(self, turn: Turn) -> tuple[Sequence[Message], bool]:
        """Carry out the turn's calls: exactly one result per call, in order; and whether the run is over."""


class Loop(Protocol):
    """The bounded loop: ask, act, ask again."""

    def run(self, opening: Sequence[Message], host: LoopHost, max_malformed: int) -> bool:
        """Drive until `act` says it is over (True), or `max_malformed` malformed turns in a row came (False)."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a role run is about: the prompt's variables, and the facts its validator checks against."""

    variables: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict)


def unscreened(command: str) -> str:
    """Lets every command pass."""
    del command
    return ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a role run works with. `redact` is applied to every text before it enters the history. `protocol` is
    the model route's way of asking for tools: `tools` (its own tool calls) or `text` (fenced blocks). `screen`
    says why a command is not run at all, for the model to read; empty where it may run. When a history has more than
    `history_chars`, old observations in it are elided (0: never)."""

    sandbox: Sandbox
    model: Model
    recorder: Recorder
    clock: Clock
    redact: Callable[[str], str]
    observation_bytes: int = 6 << 10
    history_chars: int = 100_000
    protocol: str = "tools"
    screen: Callable[[str], str] = unscreened


@dataclass(frozen=True, slots=True)
class Termination:
    """Who may end a role run from outside. `cancelled` is set by a signal, a lost claim or a person."""

    cancelled: threading.Event


class RoleRunner(Protocol):
    """One runner for every role."""

    def role(self, name: str) -> Role:
        """A role's definition. Raises UsageError naming the nearest when there is none."""

    def run(
        self, role: Role, task: Task, environment: Environment, termination: Termination, budget: Budget
    ) -> RoleResult:
        """One bounded run. Always returns a result; raises only AuditError and programming errors."""
