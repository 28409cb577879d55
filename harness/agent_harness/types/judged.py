"""Role runs, candidates and the gates that judge them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent_harness.types.base import JSON
from agent_harness.types.box import Mode
from agent_harness.types.work import Limits, Spend


class Ended(StrEnum):
    """Why a role run ended. SUBMITTED alone carries a validated result; `limit_*` runs are incomplete."""

    SUBMITTED = "submitted"
    LIMIT_STEPS = "limit_steps"
    LIMIT_TOKENS = "limit_tokens"
    LIMIT_SPEND = "limit_spend"
    LIMIT_SECONDS = "limit_seconds"
    CONTEXT_EXCEEDED = "context_exceeded"
    REFUSED = "refused"
    MALFORMED = "malformed"
    EMPTY = "empty"
    LOOP = "loop"
    CANCELLED = "cancelled"
    MODEL_FAULT = "model_fault"
    CREDENTIALS = "credentials"
    SANDBOX_FAULT = "sandbox_fault"
    HARNESS_FAULT = "harness_fault"
    """Only in `role.ended`: a fault of the harness itself, raised once it was recorded."""

    @property
    def is_limit(self) -> bool:
        """A ceiling was reached: the work is kept and may go on."""
        return self.value.startswith("limit_") or self is Ended.CONTEXT_EXCEEDED


@dataclass(frozen=True, slots=True)
class Role:
    """A role as its folder defines it. Prompts are templates; their digests go on the receipt."""

    name: str
    mode: Mode
    system: str
    task: str
    prompt_digests: Mapping[str, str]
    tools: tuple[str, ...]
    schema: JSON
    limits: Limits
    command_timeout_s: float


@dataclass(frozen=True, slots=True)
class RoleResult:
    """The end of one role run. `submission` is validated, and None unless `ended` is SUBMITTED."""

    role: str
    role_run: str
    ended: Ended
    detail: str
    submission: JSON | None
    spend: Spend
    seconds: float
    accepted: JSON | None = None
    """The last submission that was validated, also of a run that was to give another and did not."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between base and candidate. Modes are git's octal texts, `000000` where absent."""

    path: bytes
    status: str
    old_mode: str
    new_mode: str
    new_size: int
    binary: bool

    @property
    def shown(self) -> str:
        """The path for people and prompts: undecodable bytes and control characters escaped."""
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in self.path.decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something in the work tree that can be no part of a candidate, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """The exact tree proposed for delivery. `commit` lives in the harness's own repository."""

    base: str
    tree: str
    commit: str
    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...] = ()
    ignored: tuple[str, ...] = ()
    """Untracked files that the project's ignore rules kept out of the tree (capped list)."""

    @property
    def empty(self) -> bool:
        """Nothing differs from the base."""
        return not self.changes and not self.refusals


class GateOutcome(StrEnum):
    """ERROR means the gate could not judge: never a pass, and never the work's fault."""

    PASS = "pass"
    FAIL = "fail"
    HOLD = "hold"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate's judgement of one candidate. `reasons` are whole sentences for people and the next attempt."""

    gate: str
    outcome: GateOutcome
    reasons: tuple[str, ...] = ()
    evidence: JSON = field(default_factory=dict)
