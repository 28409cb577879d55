"""A review without a queue: one change, the read-only reviewer, a report."""

from __future__ import annotations

import json
import threading
from typing import Any

from agent_harness import __version__
from agent_harness.errors import Exit
from agent_harness.gates import Case, judge_all
from agent_harness.parts import Parts, Work
from agent_harness.receipt import build
from agent_harness.types import (
    JSON,
    Candidate,
    GateOutcome,
    Item,
    ItemState,
    Proof,
    ReviewFinding,
    ReviewReport,
    canonical,
    digest,
)
from agent_harness.types.kinds import Kind

NO_ITEM = Item("", "", "", ItemState.CLAIMED, None, None, (), 0, None, None, (), (), 0, 0, 0, 0, "", "", 0, 0)


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
    return ReviewReport(
        run=work.run,
        base=base,
        head=head,
        verdict=verdict,
        exit=int(exit_),
        reason=reason,
        summary=parts.redact(str(submission.get("summary", ""))),
        findings=tuple(_finding(one) for one in submission.get("findings", ())),
        receipt=json.loads(receipt),
    )


def _finding(one: JSON) -> ReviewFinding:
    texts: dict[str, Any] = {name: str(one.get(name, "")) for name in ("title", "body", "severity", "path", "side", "quote")}
    return ReviewFinding(
        **texts,
        kind=str(one.get("kind", "")),
        line=one["line"],
        end_line=one["end_line"],
        proof=Proof.VERIFIED,
        blocking=bool(one["blocking"]),
        fingerprint=digest(canonical(texts))[7:39],
    )
