"""Gates: each judges one candidate. `judge_all` runs them in order and stops at the first that is not a pass."""

# pyright: reportReturnType=false
# (a Protocol's methods have a docstring for a body)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_harness.errors import AuditError, Cancelled, ClaimLost, HarnessError
from agent_harness.ports import Clock, Recorder
from agent_harness.types import Candidate, GateOutcome, GateResult, Item, canonical
from agent_harness.types.kinds import Kind


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged: the candidate of an item, against its base."""

    item: Item
    base: str
    candidate: Candidate


class Gate(Protocol):
    """A judge. May raise any HarnessError: that is an ERROR, never a verdict on the work."""

    @property
    def name(self) -> str:
        """The gate's name in events and on the receipt."""

    def judge(self, case: Case) -> GateResult:
        """Judge the exact tree of the candidate."""


def judge_all(gates: Sequence[Gate], case: Case, recorder: Recorder, clock: Clock) -> list[GateResult]:
    """Results in order, up to and including the first that is not a pass. A gate that breaks is an ERROR."""
    results: list[GateResult] = []
    for gate in gates:
        recorder.event(Kind.GATE_STARTED, {"gate": gate.name, "tree": case.candidate.tree})
        started = clock.monotonic()
        try:
            result = gate.judge(case)
        except (AuditError, Cancelled, ClaimLost):
            raise
        except HarnessError as error:
            result = GateResult(gate.name, GateOutcome.ERROR, (error.line,), {"exit": int(error.exit)})
        except Exception as error:  # a bug in a gate may not become a verdict
            result = GateResult(gate.name, GateOutcome.ERROR, (f"the gate itself broke: {error!r}",), {})
        recorder.event(
            Kind.GATE_JUDGED,
            {
                "gate": result.gate,
                "tree": case.candidate.tree,
                "outcome": result.outcome,
                "reasons": list(result.reasons),
                "seconds": round(clock.monotonic() - started, 3),
            },
            {"evidence": canonical(result.evidence)},
        )
        results.append(result)
        if result.outcome is not GateOutcome.PASS:
            break
    return results
