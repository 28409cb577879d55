"""Which end of a role run a fault means."""

from agent_harness import errors
from agent_harness.errors import HarnessError, ModelFaultKind
from agent_harness.types import Ended

_MODEL: dict[object, Ended] = {
    ModelFaultKind.CONTEXT: Ended.CONTEXT_EXCEEDED,
    ModelFaultKind.FILTERED: Ended.REFUSED,
    ModelFaultKind.AUTH: Ended.CREDENTIALS,
}


def ended_by(fault: HarnessError, *, cancelled: bool) -> Ended:
    """How a run ended that this fault broke off. A cancelled run may break anywhere: its sandbox was taken away."""
    if cancelled or isinstance(fault, errors.Cancelled | errors.ClaimLost):
        return Ended.CANCELLED
    if isinstance(fault, errors.LimitReached):
        return Ended(f"limit_{fault.limit}")
    if isinstance(fault, errors.CredentialError):
        return Ended.CREDENTIALS
    if isinstance(fault, errors.InfrastructureError) and not isinstance(fault, errors.ModelFault):
        return Ended.SANDBOX_FAULT
    return _MODEL.get(getattr(fault, "kind", None), Ended.MODEL_FAULT)
