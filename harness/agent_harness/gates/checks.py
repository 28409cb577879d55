"""The checks gate: the project's own commands, on the exact candidate, in a fresh sandbox, compared with the base.

A check that ran no test is not a pass. One that cannot even run on the base is said so before a model is paid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from agent_harness.gates import Case
from agent_harness.gates.counting import Counts, from_junit, from_output
from agent_harness.gates.policy import moved
from agent_harness.ports import Recorder, Sandbox
from agent_harness.types import (
    Allowance,
    Check,
    CheckKind,
    Command,
    CommandEnd,
    CommandResult,
    Deliverable,
    GateOutcome,
    GateResult,
    Item,
)
from agent_harness.types.kinds import Kind

REPORT = "/scratch/harness-junit.xml"
REPORT_LIMIT = 16 << 20
OUTPUT_KEPT = 256 << 10
NAMED = 12
"""How many test names a reason lists before it says how many more there are."""

LONGEST = 400
"""Characters of a name or line of output in a reason."""

OpenTree = Callable[[str, str], AbstractContextManager[Sandbox]]
"""(commit, purpose) -> a fresh sandbox on a checkout of exactly that commit."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """One check on one tree. `broken` says why it could not run at all (missing tool, nothing collected, ...)."""

    check: Check
    passed: bool
    broken: str
    exit_code: int
    end: CommandEnd
    counts: Counts | None
    shown: str
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For the log and the receipt."""
        counts = self.counts
        same = {name: getattr(self, name) for name in ("passed", "broken", "exit_code", "end", "seconds")}
        return same | {
            "command": self.check.command,
            "kind": self.check.kind,
            "collected": counts.collected if counts else None,
            "skipped": counts.skipped if counts else None,
            "failing": sorted(counts.failing) if counts else [],
        }


class Checks:
    """Runs checks on trees, remembering a base's reports for the life of the process."""

    def __init__(self, open_tree: OpenTree, redact: Callable[[str], str]) -> None:
        self._open, self._redact = open_tree, redact
        self._known: dict[tuple[str, tuple[Check, ...]], list[CheckReport]] = {}

    def on_base(self, base: str, checks: Sequence[Check], recorder: Recorder) -> list[CheckReport]:
        """The state to compare with."""
        key = (base, tuple(checks))
        if key not in self._known:
            self._known[key] = self.on(base, checks, recorder, "checks-base")
        return self._known[key]

    def on(self, commit: str, checks: Sequence[Check], recorder: Recorder, purpose: str) -> list[CheckReport]:
        """Every check, each in order, in one fresh sandbox. Raises SandboxLost, SandboxUnavailable."""
        with self._open(commit, purpose) as sandbox:
            return [self._one(sandbox, check, recorder, purpose) for check in checks]

    def _one(self, sandbox: Sandbox, check: Check, recorder: Recorder, purpose: str) -> CheckReport:
        env = {"PYTEST_ADDOPTS": f"--junitxml={REPORT}"} if check.kind is CheckKind.TESTS else {}
        sandbox.execute(Command(f"rm -f {REPORT}", timeout_s=30))
        result = ran(sandbox, Command(check.command, check.timeout_s, env=env, keep=OUTPUT_KEPT), recorder, purpose)
        counts = _counts(sandbox, result.head + result.tail) if check.kind is CheckKind.TESTS else None
        broken = _broken(check, result, counts)
        shown = self._redact(_text(result))
        passed, seconds = result.ok and not broken, round(result.seconds, 3)
        return CheckReport(check, passed, broken, result.exit_code, result.end, counts, shown, seconds)


def ran(sandbox: Sandbox, command: Command, recorder: Recorder, where: str) -> CommandResult:
    """A command's result, its start and its end on record."""
    recorder.event(Kind.COMMAND_STARTED, {"where": where, "command": command.script})
    result = sandbox.execute(command)
    told = {"where": where, "end": result.end, "exit_code": result.exit_code, "bytes": result.total_bytes}
    seconds = {"seconds": round(result.seconds, 3)}
    recorder.event(Kind.COMMAND_ENDED, told | seconds, {"output": result.head + result.tail})
    return result


def _text(result: CommandResult) -> str:
    cut = f"\n[... {result.cut_bytes} bytes cut ...]\n".encode() if result.cut_bytes else b""
    return (result.head + cut + result.tail).decode("utf-8", "replace")


def _counts(sandbox: Sandbox, output: bytes) -> Counts | None:
    """The printed summary; the report in its place, with all names, where both count the same or nothing is printed."""
    report = sandbox.execute(Command(f"test -f {REPORT} && cat {REPORT}", timeout_s=60, keep=REPORT_LIMIT))
    told = from_junit(report.head + report.tail) if report.ok and not report.cut_bytes else None
    printed = from_output(output)
    if told is None or (printed is not None and printed.collected != told.collected):
        return printed
    return replace(told, proven=printed is not None)


def _broken(check: Check, result: CommandResult, counts: Counts | None) -> str:
    """Why this check could not run at all on this tree, or empty."""
    if result.end is CommandEnd.OUT_OF_MEMORY:
        return "it ran out of memory (sandbox.memory)"
    if result.end in {CommandEnd.TIMEOUT, CommandEnd.IDLE}:
        return f"it did not end within {check.timeout_s:g} s"
    if result.exit_code in {126, 127}:
        return f"exit code {result.exit_code}: a program is missing in the sandbox image, or is not executable"
    return _uncounted(result, counts) if check.kind is CheckKind.TESTS else ""


def _uncounted(result: CommandResult, counts: Counts | None) -> str:
    if counts is None:
        return (
            f"exit code {result.exit_code} and no test summary in its output, so no test can be counted "
            '(a linter or a build is declared with kind = "command")'
        )
    if counts.collected == 0:
        return "it collected no tests"
    if counts.ran == 0 and counts.errors:
        return f"no test could run: {counts.errors} error(s) while collecting or setting up"
    if counts.ran == 0 and result.exit_code == 0:
        return "every test it collected was skipped"
    return ""


def unrunnable(reports: Sequence[CheckReport], item: Item) -> list[str]:
    """Sentences on the checks that cannot run on the base, or none. `new-checks` lets an item bring them."""
    if item.deliverable is Deliverable.ANSWER:
        return []
    if not reports:  # what was queued with the project's checks may find them gone
        return ["neither the item nor project.checks names a check: nothing could tell whether a change is right"]
    if Allowance.NEW_CHECKS in item.allow:
        return []
    return [f"check `{r.check.command}` cannot run on the base: {r.broken}" for r in reports if r.broken]


class ChecksGate:
    """Passes a candidate on which every check passes and nothing was weakened against the base."""

    name = "checks"

    def __init__(
        self, checks: Checks, commands: Sequence[Check], recorder: Recorder, depends: Sequence[str] = ()
    ) -> None:
        self._checks, self._commands, self._recorder, self._depends = checks, tuple(commands), recorder, depends
        self.reports: list[CheckReport] = []

    def judge(self, case: Case) -> GateResult:
        """The candidate's reports against those of the base."""
        before = self._checks.on_base(case.base, self._commands, self._recorder)
        self.reports = self._checks.on(case.candidate.commit, self._commands, self._recorder, "checks-candidate")
        reasons: list[str] = []
        for old, new in zip(before, self.reports, strict=True):
            reasons += compare(old, new, case.item.allow)
        if reasons and (names := moved(case.candidate.changes, self._depends)):
            how = "what the candidate newly depends on is not in it: deliver that by an item of its own first"
            reasons.append(f"the sandbox is made from the base, and {names} changed: {how}")
        evidence = {"base": [r.as_json() for r in before], "candidate": [r.as_json() for r in self.reports]}
        outcome = GateOutcome.FAIL if reasons else GateOutcome.PASS
        return GateResult(self.name, outcome, tuple(reasons), evidence)


def compare(old: CheckReport, new: CheckReport, allow: Sequence[Allowance]) -> list[str]:
    """What speaks against a candidate's report, in sentences; empty when nothing does."""
    name = f"check `{new.check.command}`"
    if new.broken:
        return [f"{name} cannot run on the candidate: {new.broken}{_tail(new)}"]
    reasons = _failures(name, old, new)
    if new.counts is not None and old.counts is not None and not old.broken:
        reasons += _weaker(name, old.counts, new.counts, allow)
    return reasons


def _failures(name: str, old: CheckReport, new: CheckReport) -> list[str]:
    if new.passed:
        return []
    was, now = (r.counts.failing if r.counts else frozenset() for r in (old, new))
    fresh = now - was
    bad, had = (r.counts.failed + r.counts.errors if r.counts else 0 for r in (new, old))
    if new.check.no_worse and not old.passed and not old.broken and now and not fresh and bad <= had:
        return []
    told = f"{name} fails with exit code {new.exit_code}"
    if fresh:
        told += f"; newly failing: {_names(fresh)}"
    elif bad > had:
        told += f"; {bad} fail, {had} on the base"
    if now & was:
        told += f"; still failing: {_names(now & was)}"
    return [told + _tail(new)]


def _weaker(name: str, old: Counts, new: Counts, allow: Sequence[Allowance]) -> list[str]:
    reasons = []
    if Allowance.FEWER_TESTS not in allow:
        if old.proven and not new.proven and not new.failing:
            why = "its report and its printed summary do not agree, as they did on the base"
            reasons.append(f"{name} cannot be counted: {why} (of several test runs, make each a check of its own)")
        gone = (old.names - new.names) if old.names is not None and new.names is not None else frozenset()
        if new.collected < old.collected:
            named = f": {_names(gone)}" if gone else ""
            reasons.append(f"{name} collects {new.collected} tests, {old.collected} on the base{named}")
        elif gone:
            reasons.append(f"{name} no longer collects {_names(gone)}")
    if Allowance.NEW_SKIPS not in allow:
        fresh = new.skipping - old.skipping
        if new.skipped > old.skipped:
            named = f": {_names(fresh)}" if fresh else ""
            reasons.append(f"{name} skips {new.skipped} tests, {old.skipped} on the base{named}")
        elif old.names is not None and fresh & old.names:
            reasons.append(f"{name} newly skips {_names(fresh & old.names)}")
    return reasons


def _names(names: frozenset[str]) -> str:
    first = [one if len(one) <= LONGEST else one[:LONGEST] + "…" for one in sorted(names)[:NAMED]]
    return ", ".join(first) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _tail(report: CheckReport) -> str:
    """The end of the output: where every runner puts what went wrong."""
    lines = [line[-LONGEST:] for line in report.shown.strip().splitlines()[-15:]]
    return "\n" + "\n".join(lines) if lines else ""
