"""The review gate: the reviewer role on a read-only checkout of the candidate, base beside it.

Its verdict counts only when it validated, and only when the tree it looked at is the same before and after.
Everything else is an ERROR: inconclusive, never a pass and never the work's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from agent_harness.errors import Exit
from agent_harness.gates import Case
from agent_harness.gates.checks import CheckReport
from agent_harness.ports import Budget, Environment, RoleRunner, Sandbox, Task, Termination
from agent_harness.types import Candidate, Ended, GateOutcome, GateResult, Role, RoleResult, digest

DIFF_SHOWN = 48 << 10
"""Characters of a diff put into the prompt; past that the reviewer is told so and has to read."""


@dataclass(frozen=True, slots=True)
class ReviewSurface:
    """What the gate needs of the workspace and the sandbox, as functions, so that it knows neither."""

    open: Callable[[Candidate], AbstractContextManager[tuple[Sandbox, Callable[[], bool]]]]
    """A candidate's read-only sandbox, and a check that its tree is still the candidate's."""
    diff: Callable[[str, str], bytes]
    read: Callable[[str, str], bytes | None]
    environment: Callable[[Sandbox], Environment]


class ReviewGate:
    """Asks the reviewer. `result` holds the role run after judging."""

    name = "review"

    def __init__(
        self,
        surface: ReviewSurface,
        runner: RoleRunner,
        role: Role,
        *,
        termination: Termination,
        budget: Callable[[], Budget],
        reports: Callable[[], Sequence[CheckReport]],
    ) -> None:
        self._surface, self._runner, self._role, self._termination = surface, runner, role, termination
        self._budget, self._reports = budget, reports
        self.result: RoleResult | None = None

    def judge(self, case: Case) -> GateResult:
        """The verdict as a gate result, or ERROR with the reason why there is none."""
        with self._surface.open(case.candidate) as (sandbox, unchanged):
            environment = self._surface.environment(sandbox)
            task = self._task(case, environment.redact)
            self.result = self._runner.run(self._role, task, environment, self._termination, self._budget())
            intact = unchanged()
        if not intact:
            return self._error("the reviewed tree changed during the review, so the review is void", Exit.INCONCLUSIVE)
        return self._verdict(self.result)

    def _task(self, case: Case, redact: Callable[[str], str]) -> Task:
        whole = redact(self._surface.diff(case.base, case.candidate.commit).decode("utf-8", "replace"))
        complete, mark = len(whole) <= DIFF_SHOWN, digest(whole)[7:19]  # a text cannot hold its own digest
        diff = f"<diff {mark}>\n{whole[:DIFF_SHOWN]}\n</diff {mark}>"
        changed = tuple(change.shown for change in case.candidate.changes)
        note = (
            "The whole diff:"
            if complete
            else f"The first {DIFF_SHOWN} of {len(whole)} characters of the diff; read every changed file that is cut:"
        )
        variables = {
            "title": redact(case.item.title),
            "brief": redact(case.item.brief),
            "diff": diff,
            "diff_note": note,
            "changed": "\n".join(f"{c.status} {c.shown}" for c in case.candidate.changes),
            "checks": "\n".join(_told(report) for report in self._reports()) or "none were run",
        }
        facts = {
            "changed": changed,
            "diff_complete": complete,
            "read_candidate": lambda path: self._surface.read(case.candidate.tree, path),
            "read_base": lambda path: self._surface.read(case.base, path),
        }
        return Task(variables, facts)

    def _verdict(self, result: RoleResult) -> GateResult:
        if result.ended is not Ended.SUBMITTED or result.submission is None:
            known = {Ended.CREDENTIALS: Exit.CREDENTIALS, Ended.CANCELLED: Exit.INTERRUPTED}
            code = Exit.LIMIT if result.ended.is_limit else known.get(result.ended, Exit.INCONCLUSIVE)
            return self._error(f"no verdict: the reviewer's run ended {result.ended}: {result.detail}", code)
        submission = result.submission
        evidence = {"verdict": submission["verdict"], "submission": submission}
        if submission["verdict"] == "pass":
            return GateResult(self.name, GateOutcome.PASS, (), evidence)
        reasons = tuple(
            f"{f['severity']} {f['path']}{':' + str(f['line']) if f.get('line') else ''} {f['title']}: {f['body']}"
            for f in submission.get("findings", ())
        )
        return GateResult(self.name, GateOutcome.FAIL, reasons or (str(submission.get("summary", "")),), evidence)

    def _error(self, why: str, code: Exit) -> GateResult:
        return GateResult(self.name, GateOutcome.ERROR, (why,), {"verdict": "inconclusive", "exit": int(code)})


def _told(report: CheckReport) -> str:
    counts = report.counts
    told = f", {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped" if counts else ""
    return f"`{report.check.command}`: {'passes' if report.passed else 'fails'}{told}"
