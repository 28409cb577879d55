"""A review without a queue: one change, the read-only reviewer, a report."""

import json
import threading
from dataclasses import replace

from agent_harness.errors import Exit
from agent_harness.gates import Case, judge_all
from agent_harness.gates.review import Terms
from agent_harness.parts import Parts, Work
from agent_harness.types import Candidate, Item, ItemState, ReviewReport
from agent_harness.types.kinds import Kind

NO_ITEM = Item("", "", "", ItemState.CLAIMED, None, None, (), 0, None, None, (), (), 0, 0, 0, 0, "", "", 0, 0)
MESSAGES = 16 << 10
"""Characters of commit messages that are told."""


def review(parts: Parts, work: Work, base: str, head: str, stop: threading.Event, *, terms: Terms) -> ReviewReport:
    """Judge what the commit `head` changes since it left `base`; the harness's own repository holds both.

    The `claims` of `terms` are what the change says of itself beside its commit messages; with a `target`, such as a
    branch, a head that goes on from one reviewed there before is a later round of the same review."""
    repository, recorder = parts.repository, parts.audit.recorder("", work.run)
    base = repository.merge_base(base, head) or base
    parts.opened(work, recorder, base)
    candidate = Candidate(base, repository.tree_of(head), head, repository.changes(base, head))
    story = "\n\n".join(one for one in (terms.claims, _messages(parts, base, head)) if one.strip())
    stage = parts.stage(work, recorder, stop)
    try:
        stage.prepare(base)
        gate = parts.reviewer(work, stage, recorder, stop, None, terms=replace(terms, claims=story))
        (result,) = judge_all([gate], Case(NO_ITEM, base, candidate), recorder, parts.clock)
    finally:
        stage.close()
    report = gate.report
    if report is None:  # the gate could not judge at all
        code = int(result.evidence.get("exit", Exit.INCONCLUSIVE))
        report = ReviewReport(work.run, base, head, "inconclusive", exit=code, reason="; ".join(result.reasons))
    report = replace(report, run=work.run, base=base, head=head, reason=parts.redact(report.reason))
    receipt = parts.receipt(work.run, recorder)
    recorder.event(Kind.RUN_ENDED, {"outcome": report.verdict, "exit": report.exit, "reason": report.reason})
    return replace(report, receipt=json.loads(receipt))


def _messages(parts: Parts, base: str, head: str) -> str:
    """What the commits of the change say, oldest first; where that is too much, how much was left out."""
    raw = parts.repository.git.run("log", "--reverse", "--format=%B", "--end-of-options", f"{base}..{head}")
    text = raw.decode("utf-8", "replace").strip()
    left = len(text) - MESSAGES
    return text if left <= 0 else f"{text[:MESSAGES]}\n[{left} more characters of commit messages are not told]"
