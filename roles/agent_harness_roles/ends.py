"""Which end of a role run a fault means."""

from __future__ import annotations

from agent_harness.errors import (
    Cancelled,
    ClaimLost,
    CredentialError,
    HarnessError,
    InfrastructureError,
    LimitReached,
    ModelFault,
    ModelFaultKind,
)
from agent_harness.types import Ended

_MODEL = {
    ModelFaultKind.CONTEXT: Ended.CONTEXT_EXCEEDED,
    ModelFaultKind.FILTERED: Ended.REFUSED,
    ModelFaultKind.AUTH: Ended.CREDENTIALS,
}


def ended_by(fault: HarnessError, *, cancelled: bool) -> Ended:
    """How a run ended that this fault broke off. A cancelled run may break anywhere: its sandbox was taken away."""
    if cancelled or isinstance(fault, Cancelled | ClaimLost):
        return Ended.CANCELLED
    if isinstance(fault, LimitReached):
        return Ended(f"limit_{fault.limit}")
    if isinstance(fault, CredentialError):
        return Ended.CREDENTIALS
    if isinstance(fault, InfrastructureError) and not isinstance(fault, ModelFault):
        return Ended.SANDBOX_FAULT
    return _MODEL.get(fault.kind, Ended.MODEL_FAULT) if isinstance(fault, ModelFault) else Ended.MODEL_FAULT
