"""The error tree. Only `cli/` turns an error into an exit code; each class says which.

HarnessError                 3   one clear line: what, where, why, what to do next
├── UsageError               2   the caller asked for something that cannot be
│   └── ConfigError          2   a configuration value is missing, unknown or wrong
├── CredentialError          4   a key is missing or was refused
├── NothingToDo              5   no item is ready
├── LimitReached             6   the next step could pass a ceiling
├── AuditError               7   the log could not be written, or does not verify
├── InfrastructureError      3   the surroundings failed: never the work's fault
│   ├── SandboxUnavailable   3   no engine, no image, or a profile that does not hold
│   ├── SandboxLost          3   the container is gone, broken or out of memory
│   ├── GitFault             3   git could not do it (disk, permission, lock)
│   ├── StoreFault           3   the database could not do it
│   └── ModelFault           3   the provider could not answer; `kind` says how
│       └── ReplayDrift      3   a recording was asked something else than it holds
├── ClaimLost                3   another worker holds the item now; nothing more may be written for it
├── DeliveryRefused          8   the target is not what the delivery was built on
└── Cancelled              130   a person or a signal ended it; state is saved
"""

from enum import IntEnum, StrEnum

from agent_harness.types import Usage


class Exit(IntEnum):
    """The exit codes, never overloaded."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    CREDENTIALS = 4
    NOTHING = 5
    LIMIT = 6
    AUDIT = 7
    HELD = 8
    INTERRUPTED = 130


class HarnessError(Exception):
    """One clear line: `what` (with where), `why`, and what to do `next`."""

    exit = Exit.INCONCLUSIVE

    def __init__(self, what: str, *, why: str = "", next: str = "") -> None:
        self.what, self.why, self.next = what, why, next
        super().__init__(self.line)

    @property
    def told(self) -> str:
        """What and why."""
        return self.what + (f": {self.why}" if self.why else "")

    @property
    def line(self) -> str:
        """What a person reads, on one line."""
        return " ".join((self.told + (f". Next: {self.next}" if self.next else "")).split())


class UsageError(HarnessError):
    """The caller asked for something that cannot be."""

    exit = Exit.USAGE


class ConfigError(UsageError):
    """A configuration value is missing, unknown or wrong."""


class CredentialError(HarnessError):
    """A key is missing, or the provider refused it."""

    exit = Exit.CREDENTIALS


class NothingToDo(HarnessError):
    """No item is ready."""

    exit = Exit.NOTHING


class LimitReached(HarnessError):
    """The next step could pass a ceiling. `limit` is steps, tokens, spend or seconds; `scope` whose it is."""

    exit = Exit.LIMIT

    def __init__(self, limit: str, scope: str, what: str, *, next: str = "") -> None:
        self.limit, self.scope = limit, scope
        super().__init__(what, next=next)


class AuditError(HarnessError):
    """The log could not be written, or does not verify."""

    exit = Exit.AUDIT


class InfrastructureError(HarnessError):
    """The surroundings failed. Costs no attempt."""


class SandboxUnavailable(InfrastructureError):
    """No engine, no image, or a container that does not have the profile it was asked to have."""


class SandboxLost(InfrastructureError):
    """The container is gone, broken or out of memory. Never shown to a model as a command's output."""


class GitFault(InfrastructureError):
    """Git could not do it."""


class StoreFault(InfrastructureError):
    """The database could not do it."""


class ModelFaultKind(StrEnum):
    """What a provider's failure means for the next try; the most hopeful first."""

    RETRY = "retry"
    MALFORMED = "malformed"
    CONTEXT = "context"
    CAP = "cap"
    FILTERED = "filtered"
    REFUSED = "refused"
    AUTH = "auth"


class ModelFault(InfrastructureError):
    """The provider gave no usable answer. `retry_after_s` is its own wish, if it named one; `usage` is what it
    billed all the same, where it said so."""

    def __init__(
        self,
        kind: ModelFaultKind,
        what: str,
        *,
        why: str = "",
        next: str = "",
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.kind, self.retry_after_s, self.usage = kind, retry_after_s, usage
        super().__init__(what, why=why, next=next)


class ReplayDrift(ModelFault):
    """A recording was asked something else than it holds."""

    def __init__(self, what: str, *, why: str = "", next: str = "") -> None:
        super().__init__(ModelFaultKind.REFUSED, what, why=why, next=next)


class ClaimLost(HarnessError):
    """Another worker holds the item now."""


class DeliveryRefused(HarnessError):
    """The target is not what the delivery was built on. The candidate is kept."""

    exit = Exit.HELD


class Cancelled(HarnessError):
    """A person or a signal ended it."""

    exit = Exit.INTERRUPTED
