"""Items, claims, limits and events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_harness.types.base import JSON


class ItemState(StrEnum):
    """Where an item stands. Only the queue moves it; every move is an event."""

    READY = "ready"
    CLAIMED = "claimed"
    DELIVERING = "delivering"
    HELD = "held"
    BLOCKED = "blocked"
    DONE = "done"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


class Deliverable(StrEnum):
    """What an item ends in: a change that every gate passed, or a cited answer that changes nothing."""

    CHANGE = "change"
    ANSWER = "answer"


class Allowance(StrEnum):
    """What an item may ask for that would otherwise stop its delivery."""

    FEWER_TESTS = "fewer-tests"
    NEW_SKIPS = "new-skips"
    CHECK_CONFIG = "check-config"
    NEW_CHECKS = "new-checks"


class CheckKind(StrEnum):
    """`tests` must report how many tests ran; `command` is judged by its exit code alone (a linter, a build)."""

    TESTS = "tests"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Check:
    """One command that judges a tree, run by `bash -c` in the workspace of a fresh sandbox."""

    command: str
    kind: CheckKind = CheckKind.TESTS
    timeout_s: float = 600.0
    no_worse: bool = False
    """Accept a failing check when nothing fails that did not fail on the base (default: it must pass)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings of a budget. All are required and positive; none is ever passed."""

    steps: int
    tokens: int
    nanousd: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Spend:
    """What was used. `steps` are model responses, good or malformed; `tokens` are input plus output."""

    steps: int = 0
    tokens: int = 0
    nanousd: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(self.steps + other.steps, self.tokens + other.tokens, self.nanousd + other.nanousd)

    def __sub__(self, other: Spend) -> Spend:
        return Spend(self.steps - other.steps, self.tokens - other.tokens, self.nanousd - other.nanousd)


@dataclass(frozen=True, slots=True)
class NewItem:
    """What a person queues. `checks`, `limits` of None mean the project's own.

    `needs` are keys of items it depends on beside `depends_on`: one that is not queued keeps it blocked until it is.
    One that is `done` is never run."""

    title: str
    brief: str
    checks: tuple[Check, ...] | None = None
    limits: Limits | None = None
    depends_on: tuple[str, ...] = ()
    priority: int = 0
    key: str | None = None
    base: str | None = None
    allow: tuple[Allowance, ...] = ()
    allow_paths: tuple[str, ...] = ()
    id: str | None = None
    deliverable: Deliverable = Deliverable.CHANGE
    needs: tuple[str, ...] = ()
    done: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """A unit of work as the queue holds it."""

    id: str
    title: str
    brief: str
    state: ItemState
    checks: tuple[Check, ...] | None
    limits: Limits | None
    depends_on: tuple[str, ...]
    priority: int
    key: str | None
    base: str | None
    allow: tuple[Allowance, ...]
    allow_paths: tuple[str, ...]
    generation: int
    failures: int
    losses: int
    not_before_ms: int
    reason: str
    feedback: str
    created_ms: int
    updated_ms: int
    deliverable: Deliverable = Deliverable.CHANGE
    missing: tuple[str, ...] = ()
    """Keys it waits for that no item has."""
    answer: str = ""
    """The digest of the answer it ended in."""

    @property
    def branch(self) -> str:
        """The branch a change of this item is delivered on. Ids are lower case, so no two ids share one."""
        return f"harness/{self.id}"


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's fenced hold on an item. Every write of the holder carries token and generation."""

    item: Item
    token: str
    generation: int
    run: str
    worker: str
    expires_ms: int


class Settlement(StrEnum):
    """How an attempt leaves the queue. The queue alone turns it into the item's next state."""

    DONE = "done"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    HELD = "held"
    DEFERRED = "deferred"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Event:
    """One append-only record. `seq` has no gaps; `leaf` is the RFC 6962 leaf hash of the other fields."""

    seq: int
    at_ms: int
    kind: str
    item: str
    run: str
    data: JSON
    leaf: str
