"""How an attempt ends: one table for role runs, one for gates."""

from __future__ import annotations

from dataclasses import dataclass

from agent_harness.errors import Exit
from agent_harness.types import Candidate, Ended, GateOutcome, GateResult, RoleResult, Settlement


@dataclass(frozen=True, slots=True)
class End:
    """How a life ends: the queue's side, the exit code, one word, and the reason in whole sentences."""

    settlement: Settlement
    exit: Exit
    outcome: str
    reason: str = ""
    commit: str = ""
    answer: str = ""


_LIMIT = (Settlement.EXHAUSTED, Exit.LIMIT, "incomplete")
_STOPPED = {
    Ended.CANCELLED: (Settlement.DEFERRED, Exit.INTERRUPTED, "interrupted"),
    Ended.CREDENTIALS: (Settlement.DEFERRED, Exit.CREDENTIALS, "inconclusive"),
    Ended.MODEL_FAULT: (Settlement.DEFERRED, Exit.INCONCLUSIVE, "inconclusive"),
    Ended.SANDBOX_FAULT: (Settlement.DEFERRED, Exit.INCONCLUSIVE, "inconclusive"),
}
"""What stopped a role that is not its own fault."""


def of_role_run(result: RoleResult, candidate: Candidate | None, *, stopped: bool, fetch: str = "") -> End | None:
    """The end after a role's run, None where there is a candidate to judge, or an answer. `fetch` is how to get the
    work of a role that has a candidate."""
    why = f"the {result.role}'s run ended {result.ended}: {result.detail}"
    has_work = candidate is not None and not candidate.empty
    kept = f"; its work is kept (`{fetch}`), and the next attempt goes on with it" if has_work else ""
    if result.ended is Ended.SUBMITTED and result.submission is not None:
        said = result.submission
        if said.get("outcome") == "impossible":
            why = f"declared impossible: {said['answer' if candidate is None else 'summary']}"
            return End(Settlement.HELD, Exit.HELD, "held", why)
        if candidate is not None and candidate.empty:
            return End(Settlement.FAILED, Exit.FAILED, "no_change", "it was submitted without any change")
        return None
    code = Exit.INCONCLUSIVE if candidate is None else Exit.FAILED  # no answer holds: there is no work to be at fault
    other = _LIMIT if result.ended.is_limit else (Settlement.FAILED, code, "incomplete")
    settlement, exit_, outcome = _STOPPED.get(Ended.CANCELLED if stopped else result.ended, other)
    return End(settlement, exit_, outcome, why + kept)


def of_gate(last: GateResult) -> End | None:
    """The end after the last gate that judged, None where it passed."""
    reason = f"gate {last.gate}: " + "; ".join(last.reasons)
    if last.outcome is GateOutcome.PASS:
        return None
    if last.outcome is GateOutcome.FAIL:
        return End(Settlement.FAILED, Exit.FAILED, "gate_failed", reason)
    if last.outcome is GateOutcome.HOLD:
        return End(Settlement.HELD, Exit.HELD, "held", reason)
    exit_ = Exit(last.evidence.get("exit", Exit.INCONCLUSIVE))
    if exit_ is Exit.LIMIT:
        return End(Settlement.EXHAUSTED, exit_, "incomplete", reason)
    return End(Settlement.DEFERRED, exit_, "inconclusive", reason)
