"""The nouns of the harness: frozen, without I/O, known to every part.

Units are in the names: `_ms` are milliseconds since the epoch, `_s` are seconds, money is an integer of
nano-dollars (1 USD = 1_000_000_000), so that sums are exact. A price is always rounded up.
"""

from agent_harness.types.base import JSON, NANO, canonical, digest, dollars
from agent_harness.types.box import (
    Command,
    CommandEnd,
    CommandResult,
    ImagePlan,
    Mode,
    Mount,
    SandboxSpec,
    Service,
    endpoint,
)
from agent_harness.types.judged import (
    Candidate,
    Change,
    Ended,
    GateOutcome,
    GateResult,
    Refusal,
    Role,
    RoleResult,
)
from agent_harness.types.talk import (
    Finish,
    Message,
    ModelRequest,
    Reply,
    ToolCall,
    ToolSpec,
    Usage,
)
from agent_harness.types.work import (
    Allowance,
    Check,
    CheckKind,
    Claim,
    Event,
    Item,
    ItemState,
    Limits,
    NewItem,
    Settlement,
    Spend,
)

__all__ = [
    "JSON",
    "NANO",
    "Allowance",
    "Candidate",
    "Change",
    "Check",
    "CheckKind",
    "Claim",
    "Command",
    "CommandEnd",
    "CommandResult",
    "Ended",
    "Event",
    "Finish",
    "GateOutcome",
    "GateResult",
    "ImagePlan",
    "Item",
    "ItemState",
    "Limits",
    "Message",
    "Mode",
    "ModelRequest",
    "Mount",
    "NewItem",
    "Refusal",
    "Reply",
    "Role",
    "RoleResult",
    "SandboxSpec",
    "Service",
    "Settlement",
    "Spend",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "canonical",
    "digest",
    "dollars",
    "endpoint",
]
