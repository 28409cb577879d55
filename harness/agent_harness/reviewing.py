"""A review without a queue: one change, the read-only reviewer, a report."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

from agent_harness import __version__
from agent_harness.errors import Exit
from agent_harness.gates import Case, judge_all
from agent_harness.parts import Parts, Work
from agent_harness.receipt import build
from agent_harness.types import Candidate, GateOutcome, Item, ItemState, canonical
from agent_harness.types.kinds import Kind

NO_ITEM = Item("", "", "", ItemState.CLAIMED, None, None, (), 0, None, None, (), (), 0, 0, 0, 0, "", "", 0, 0)


@dataclass(frozen=True, slots=True)
class ReviewReport:
    """How a review ended. `findings` are the reviewer's, each with the line that code located for its quote."""

    run: str
    base: str
    head: str
    verdict: str
    exit: Exit
    reason: str
    findings: tuple[dict[str, Any], ...]
    receipt: dict[str, Any]


def review(parts: Parts, work: Work, base_ref: str, head_ref: str, stop: threading.Event) -> ReviewReport:
    """Judge what `head_ref` changes since it left `base_ref`. Raises UsageError for a ref that is not there."""
    repository, recorder = parts.repository, parts.audit.recorder("", work.run)
    head, tip = repository.fetch(parts.source, head_ref), repository.fetch(parts.source, base_ref)
    base = repository.merge_base(tip, head) or tip
    told = {"generation": 0, "base": base, "source": parts.redact(parts.source), "mode": parts.mode}
    recorder.event(Kind.RUN_STARTED, told | {"version": __version__, "config": parts.config.digest})
    candidate = Candidate(base, repository.tree_of(head), head, repository.changes(base, head))
    stage = parts.stage(work, recorder, stop)
    try:
        stage.prepare(base)
        gate = parts.reviewer(work, stage, recorder, stop, None)
        (result,) = judge_all([gate], Case(NO_ITEM, base, candidate), recorder, parts.clock)
    finally:
        stage.close()
    verdict = {GateOutcome.PASS: "pass", GateOutcome.FAIL: "fail"}.get(result.outcome, "inconclusive")
    exits = {"pass": Exit.OK, "fail": Exit.FAILED}
    exit_ = exits.get(verdict, Exit(result.evidence.get("exit", Exit.INCONCLUSIVE)))
    submission = result.evidence.get("submission", {})
    reason = parts.redact("; ".join(result.reasons) or str(submission.get("summary", "")))
    receipt = canonical(build(parts.audit.events(run=work.run)))
    recorder.event(Kind.RECEIPT_ISSUED, {}, {"receipt": receipt})
    recorder.event(Kind.RUN_ENDED, {"outcome": verdict, "exit": int(exit_), "reason": reason})
    findings = tuple(submission.get("findings", ()))
    return ReviewReport(work.run, base, head, verdict, exit_, reason, findings, json.loads(receipt))
