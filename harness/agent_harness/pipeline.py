"""An item's whole life on one screen: base, checks there, implementer, candidate, gates, delivery, settle.

Settling comes last and is fenced; an event stands at every arrow.
"""

from __future__ import annotations

import json
import random
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from agent_harness.asking import of_item, study
from agent_harness.delivery import deliver, landed, message
from agent_harness.ends import End, of_gate, of_role_run
from agent_harness.errors import (
    AuditError,
    Cancelled,
    ClaimLost,
    CredentialError,
    DeliveryRefused,
    Exit,
    HarnessError,
    InfrastructureError,
    UsageError,
)
from agent_harness.gates import Case, Gate, judge_all
from agent_harness.gates.checks import Checks, ChecksGate, unrunnable
from agent_harness.gates.policy import PolicyGate
from agent_harness.logs import logger
from agent_harness.parts import Either, Parts, Work
from agent_harness.ports import Task, Termination
from agent_harness.queue import heartbeat
from agent_harness.receipt import RunReport
from agent_harness.stage import WORKSPACE
from agent_harness.types import (
    Candidate,
    Check,
    Claim,
    Deliverable,
    ItemState,
    Mode,
    Mount,
    RoleResult,
    Settlement,
    canonical,
    digest,
)
from agent_harness.types.kinds import Kind

RETRY_BASE_S, RETRY_CAP_S = 30.0, 900.0
DELIVERED = "refs/harness/delivered"
AUDIT_TRAILER = "Harness-Audit"
RESUMED = frozenset({"incomplete", "interrupted", "inconclusive"})
"""Outcomes whose kept work the next attempt goes on with."""
FEEDBACK_LIMIT = 8000
"""Characters of a refusal handed to the next attempt: its end, where the objection stands."""


class Life:
    """One claim's try at its item."""

    def __init__(self, parts: Parts, claim: Claim, cancelled: threading.Event) -> None:
        self._parts, self._claim, self._item = parts, claim, claim.item
        self._recorder = parts.audit.recorder(claim.item.id, claim.run)
        self._stop = Either(cancelled)
        self._for = Work(claim.run, claim.item.id, claim.generation, claim.item.limits)
        self._stage = parts.stage(self._for, self._recorder, self._stop)
        self._diff, self._issued = b"", ""

    def live(self) -> RunReport:
        """The whole life; the queue is settled and a receipt issued on every way out."""
        try:
            self._parts.opened(self._for, self._recorder, self._item.base or self._parts.config.project.base)
            ttl_s = self._parts.config.queue.claim_ttl_s
            with heartbeat(self._parts.queue, self._claim, self._stop.set, ttl_s=ttl_s):
                end = self._guarded()
        finally:
            self._stage.close()
        return self._settle(end)

    def _guarded(self) -> End:
        try:
            return self._work()
        except (AuditError, ClaimLost):
            raise
        except (DeliveryRefused, UsageError) as error:
            return End(Settlement.HELD, error.exit, "held", error.line)
        except (Cancelled, CredentialError, InfrastructureError) as error:
            return End(Settlement.DEFERRED, error.exit, "inconclusive", error.line)
        except HarnessError as error:
            return End(Settlement.FAILED, error.exit, "failed", error.line)
        except OSError as error:
            return End(Settlement.DEFERRED, Exit.INCONCLUSIVE, "inconclusive", f"this machine could not do it: {error}")
        except Exception as error:  # a bug of ours is never the work's fault
            trace = self._parts.redact(traceback.format_exc())  # an error's own text may hold anything
            logger().error("the harness itself broke", item=self._item.id, run=self._claim.run, trace=trace)
            return End(Settlement.HELD, Exit.INCONCLUSIVE, "held", f"the harness itself broke: {error!r}")

    def _work(self) -> End:
        parts, item = self._parts, self._item
        if end := self._delivered_before():
            return end
        base = parts.repository.fetch(parts.source, item.base or parts.config.project.base)
        self._stage.prepare(base)
        if item.deliverable is Deliverable.ANSWER:
            return self._answer(base)
        commands = item.checks if item.checks is not None else parts.config.project.checks
        checks = Checks(self._stage.checkout, parts.redact)
        with ThreadPoolExecutor(1) as beside:  # the implementer's sandbox starts while the base is checked
            before = beside.submit(checks.on_base, base, commands, self._recorder)
            done = self._implement(base, commands, lambda: unrunnable(before.result(), item))
        if isinstance(done, End):
            return done
        result, candidate = done
        fetch = f"git fetch '{parts.repository.path}' {self._work_ref}"
        if end := of_role_run(result, candidate, stopped=self._stop.is_set(), fetch=fetch):
            return end
        results = judge_all(self._gates(checks, commands), Case(item, base, candidate), self._recorder, parts.clock)
        return of_gate(results[-1]) or self._deliver(candidate)

    def _answer(self, base: str) -> End:
        """Its answer, as an earlier run gave it that was killed before it settled, or asked for now."""
        parts, at = self._parts, (self._stage, self._recorder, self._stop)
        if given := parts.audit.events(item=self._item.id, kinds=[Kind.ANSWER_GIVEN]):
            text = parts.audit.body(given[-1].data["answer"]).decode()
        else:
            result = study(parts, self._for, at, base, of_item(self._item))
            if end := of_role_run(result, None, stopped=self._stop.is_set()):
                return end
            text = canonical(result.submission)
        event = self._recorder.event(Kind.ANSWER_GIVEN, {"base": base}, {"answer": text})
        cites = len(json.loads(text)["evidence"])
        why = f"answered, with {cites} citation(s) that code followed"
        return End(Settlement.DONE, Exit.OK, "answered", why, answer=event.data["answer"])

    def _implement(
        self, base: str, commands: tuple[Check, ...], obstacles: Callable[[], list[str]]
    ) -> tuple[RoleResult, Candidate] | End:
        parts, item, clock = self._parts, self._item, self._parts.clock
        began = clock.monotonic()
        start, why = self._stopped_work(base)
        tree = self._stage.lay(start, "tree")
        told = {"base": base, "start": start, "seconds": round(clock.monotonic() - began, 3)}
        self._recorder.event(Kind.WORKSPACE_READY, told)
        role = parts.role("implementer")
        task = Task(
            {
                "title": parts.redact(item.title),
                "brief": parts.redact(item.brief),
                "checks": "\n".join(check.command for check in commands),
                "protected": "\n".join((*parts.config.policy.protected, *parts.config.policy.keep)),
                "feedback": parts.redact(item.feedback),
                "resumed": parts.redact(why),
            }
        )
        with self._stage.sandbox("implementer", Mode.RW, Mount(str(tree), WORKSPACE, read_only=False)) as sandbox:
            if reasons := obstacles():
                return End(Settlement.HELD, Exit.HELD, "held", "; ".join(reasons) + ". No model was asked")
            environment = parts.environment("implementer", self._recorder, self._stop)(sandbox)
            budget = parts.budget(self._for, role)
            result = parts.runner.run(role, task, environment, Termination(self._stop), budget)
        return result, self._capture(base, tree)

    def _stopped_work(self, base: str) -> tuple[str, str]:
        """Where to start: the kept work of a last attempt that was stopped before any gate refused it, and why it was
        stopped; else the base. What a gate refused is not built on."""
        log, item = self._parts.audit, self._item.id
        ended = [event for event in log.events(item=item, kinds=[Kind.RUN_ENDED]) if event.run != self._claim.run]
        if not ended or ended[-1].data["outcome"] not in RESUMED:
            return base, ""
        before = log.events(run=ended[-1].run, kinds=[Kind.WORKSPACE_READY, Kind.CANDIDATE_CAPTURED])
        same_base = any(event.data.get("base") == base for event in before)
        kept = [event.data for event in before if event.kind == Kind.CANDIDATE_CAPTURED and event.data["files"]]
        if not same_base or not kept or self._parts.repository.kept(kept[-1]["kept_as"]) != kept[-1]["commit"]:
            return base, ""
        return str(kept[-1]["commit"]), str(ended[-1].data["reason"])

    @property
    def _work_ref(self) -> str:
        """The ref of the harness's repository that keeps what this attempt leaves."""
        return f"refs/harness/work/{self._item.id}/{self._claim.generation}"

    def _capture(self, base: str, tree: Path) -> Candidate:
        began, name = self._parts.clock.monotonic(), self._work_ref
        candidate = self._parts.repository.capture(base, tree, keep_as=name, message=self._item.title)
        told = {
            "tree": candidate.tree,
            "commit": candidate.commit,
            "kept_as": name,
            "files": len(candidate.changes),
            "refusals": [f"{r.path}: {r.reason}" for r in candidate.refusals],
            "ignored": list(candidate.ignored[:50]),
            "seconds": round(self._parts.clock.monotonic() - began, 3),
        }
        self._recorder.event(Kind.CANDIDATE_CAPTURED, told)
        self._diff = self._parts.repository.diff(base, candidate.commit)
        return candidate

    def _gates(self, checks: Checks, commands: tuple[Check, ...]) -> list[Gate]:
        parts = self._parts
        judged = ChecksGate(checks, commands, self._recorder, parts.config.sandbox.setup_files)
        gates: list[Gate] = [PolicyGate(parts.config.policy, commands, parts.read_small, parts.redact), judged]
        if parts.config.review.enabled:
            gates.append(parts.reviewer(self._for, self._stage, self._recorder, self._stop, judged))
        return gates

    def _deliver(self, candidate: Candidate) -> End:
        parts, item = self._parts, self._item
        parts.queue.delivering(self._claim)
        receipt = self._receipt()
        size, root = parts.audit.root()
        trailers = {"Harness-Item": item.id, "Harness-Run": self._claim.run, "Harness-Receipt": receipt}
        text = message(item.title, trailers | {AUDIT_TRAILER: f"{size} {root}"})
        kept, now = f"{DELIVERED}/{item.id}/{self._claim.generation}", parts.clock.now_ms() // 1000
        commit = parts.repository.commit_tree(candidate.tree, candidate.base, text, at_s=now, keep_as=kept)
        effect = {"target": item.branch, "old": "", "new": commit, "tree": candidate.tree}
        self._recorder.event(Kind.DELIVERY_INTENDED, effect)
        try:
            deliver(parts.repository, parts.source, commit=commit, branch=item.branch, expected_old=None)
        except HarnessError as error:
            self._recorder.event(Kind.DELIVERY_REFUSED, {"target": item.branch, "reason": error.line})
            if isinstance(error, DeliveryRefused) and (end := self._delivered_before()):
                return end  # by a run that lost its claim in the middle of delivering
            raise
        self._recorder.event(Kind.DELIVERY_LANDED, {"target": item.branch, "commit": commit})
        return End(Settlement.DONE, Exit.OK, "delivered", f"delivered on branch {item.branch}", commit)

    def _delivered_before(self) -> End | None:
        """The end where an earlier run was killed between delivering and settling, whatever became of its branch."""
        parts, branch = self._parts, self._item.branch
        for event in parts.audit.events(item=self._item.id, kinds=[Kind.DELIVERY_INTENDED]):
            commit = event.data["new"]
            if landed(parts.repository, parts.source, commit=commit, branch=branch):
                return End(Settlement.DONE, Exit.OK, "delivered", "an earlier run had delivered it", commit)
        return None

    def _receipt(self) -> str:
        self._issued = self._parts.receipt(self._claim.run, self._recorder)
        return digest(self._issued)

    def _named_ms(self) -> int:
        """Until when a provider wants to be left alone whose failure was the last word of this run's models, else 0."""
        kinds = [Kind.MODEL_ASKED, Kind.MODEL_ANSWERED, Kind.MODEL_FAILED]
        last = self._parts.audit.events(run=self._claim.run, kinds=kinds)[-1:]
        return max((one.at_ms + int(1000 * one.data.get("retry_after_s", 0)) for one in last), default=0)

    def _settle(self, end: End) -> RunReport:
        parts, item = self._parts, self._item
        if not self._issued:
            self._receipt()
        reason = parts.redact(end.reason)
        self._recorder.event(Kind.RUN_ENDED, {"outcome": end.outcome, "exit": int(end.exit), "reason": reason})
        waits = end.settlement is Settlement.DEFERRED and end.exit is not Exit.INTERRUPTED
        delay_s = random.uniform(0, min(RETRY_CAP_S, RETRY_BASE_S * 2 ** min(item.generation, 6))) if waits else 0.0  # noqa: S311
        now, named, receipt = parts.clock.now_ms(), self._named_ms(), json.loads(self._issued)
        not_before = max(now + int(delay_s * 1000), named) if waits else 0
        lost = waits and end.exit is Exit.INCONCLUSIVE and receipt["totals"]["steps"] > 0 and named <= now
        if end.settlement is Settlement.EXHAUSTED and (closed_ms := parts.closed_ms()):  # the project, not the item
            end, not_before = replace(end, settlement=Settlement.DEFERRED), closed_ms
        left = parts.queue.settle(
            self._claim,
            end.settlement,
            reason=reason,
            feedback=reason[-FEEDBACK_LIMIT:] if end.settlement is Settlement.FAILED else item.feedback,
            not_before_ms=not_before,
            answer=end.answer,
            lost=lost,
        )
        if lost and left.state is ItemState.HELD:  # the last of so many: no more is paid before a person looked
            end, reason = replace(end, exit=Exit.HELD, outcome="held"), left.reason
        return RunReport(
            item=item.id,
            run=self._claim.run,
            outcome=end.outcome,
            exit=end.exit,
            reason=reason,
            receipt=receipt,
            branch=item.branch if end.commit else "",
            commit=end.commit,
            diff=self._diff,
        )
