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


def of_role_run(result: RoleResult, candidate: Candidate | None, *, stopped: bool, fetch: str = "") -> End | None:
    """The end after a role's run, None where there is a candidate to judge, or an answer. `fetch` is how to get the
    work of a role that has a candidate."""
    why = f"the {result.role}'s run ended {result.ended}: {result.detail}"
    kept = (
        ""
        if candidate is None or candidate.empty
        else f"; its work is kept (`{fetch}`), and the next attempt goes on with it"
    )
    if result.ended is Ended.SUBMITTED and result.submission is not None:
        said = result.submission
        if said.get("outcome") == "impossible":
            why = f"declared impossible: {said['answer' if candidate is None else 'summary']}"
            return End(Settlement.HELD, Exit.HELD, "held", why)
        if candidate is not None and candidate.empty:
            return End(Settlement.FAILED, Exit.FAILED, "no_change", "it was submitted without any change")
        return None
    if result.ended is Ended.CANCELLED or stopped:
        return End(Settlement.DEFERRED, Exit.INTERRUPTED, "interrupted", why + kept)
    if result.ended is Ended.CREDENTIALS:
        return End(Settlement.DEFERRED, Exit.CREDENTIALS, "inconclusive", why + kept)
    if result.ended in {Ended.MODEL_FAULT, Ended.SANDBOX_FAULT}:
        return End(Settlement.DEFERRED, Exit.INCONCLUSIVE, "inconclusive", why + kept)
    if result.ended.is_limit:
        return End(Settlement.EXHAUSTED, Exit.LIMIT, "incomplete", why + kept)
    return End(Settlement.FAILED, Exit.FAILED, "incomplete", why + kept)


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
