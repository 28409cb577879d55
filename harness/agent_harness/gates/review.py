"""The review gate: the reviewer role on a read-only checkout of the candidate, base beside it.

It sees diff and tree first, and what the change says of itself once its verdict stands. The verdict that counts is
made by code from what was located, confirmed and reproduced, and only when the tree is the same before and after.
Everything else is an ERROR: inconclusive, never a pass and never the work's fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from agent_harness.errors import Exit, GitFault
from agent_harness.gates import Case
from agent_harness.gates.checks import CheckReport, OpenTree
from agent_harness.gates.dispositions import OUTSIDE, WAIVERS, Round, fingerprint, settle, waivers
from agent_harness.gates.hunks import Hunk, choose, manifest, parse, told
from agent_harness.gates.policy import matches, moved
from agent_harness.gates.prove import MENDED, Prover
from agent_harness.ports import Clock, Environment, Recorder, Sandbox, Task
from agent_harness.store.verdicts import Verdicts
from agent_harness.types import JSON, Candidate, Ended, GateOutcome, GateResult, Role, RoleResult, canonical, digest
from agent_harness.types.kinds import Kind
from agent_harness.types.verdict import Proof, ReviewClaim, ReviewFinding, ReviewReport, Support

DIFF_SHOWN = 48 << 10
"""Characters of a diff put into the prompt; what is past that the reviewer is told of, and has to read."""

_LACKING = (
    "The sandbox has the dependencies of the base, and {} changed: what fails only because the candidate's are not "
    "there is no fault of the change."
)


@dataclass(frozen=True, slots=True)
class ReviewSurface:
    """What the gate needs of the workspace and the sandbox, as functions, so that it knows neither."""

    open: Callable[[Candidate], AbstractContextManager[tuple[Sandbox, Callable[[], bool]]]]
    """A candidate's read-only sandbox, and a check that its tree is still the candidate's."""
    checkout: OpenTree
    wordless: Callable[[Candidate], Candidate]
    """The same tree in a commit that says nothing: a history can tell a story, too."""
    diff: Callable[[str, str], bytes]
    read: Callable[[str, str], bytes | None]
    contains: Callable[[str, str], bool]
    """Whether a commit's history holds another."""
    environment: Callable[[Sandbox], Environment]
    ask: Callable[[Task, Environment], RoleResult]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a review is asked under. `claims` is what the change says of itself beside its item, `target` what it is
    made to and `tip` the commit that has now, whose waivers count; `inputs` is all else that a verdict depends on.
    `fresh` asks anew, whatever is remembered."""

    run: str = ""
    claims: str = ""
    target: str = ""
    tip: str = ""
    fresh: bool = False
    unread: Sequence[str] = ()
    """Globs of files that need not be read, by the base's own configuration."""
    depends: Sequence[str] = ()
    """Globs of files that name dependencies, by the same."""
    inputs: JSON = field(default_factory=dict)


PLAIN = Terms()


@dataclass(slots=True)
class ReviewGate:
    """Asks the reviewer. `report` holds what was found after judging."""

    surface: ReviewSurface
    role: Role
    terms: Terms
    verdicts: Verdicts
    recorder: Recorder
    clock: Clock
    redact: Callable[[str], str]
    reports: Callable[[], Sequence[CheckReport]]
    report: ReviewReport | None = None
    name: str = "review"

    def judge(self, case: Case) -> GateResult:
        """The verdict as a gate result, or ERROR with the reason why there is none."""
        waived = waivers(self.surface.read(self.terms.tip or case.base, WAIVERS), self.clock.now_ms())
        hunks = parse(self.surface.diff(case.base, case.candidate.commit))
        task = self._task(case, hunks)
        key = self._key(case, task)
        stored = None if self.terms.fresh else self.verdicts.recall(key)
        raw = ReviewReport.from_json(stored) if stored else self._ask(case, hunks, task)
        raw = replace(raw, run=self.terms.run, remembered=stored is not None)
        report = raw if raw.verdict == "inconclusive" else settle(raw, waived)
        if report.verdict != "inconclusive" and not report.remembered and not report.unheard:
            self.verdicts.remember(key, self.terms.target, self.clock.now_ms(), raw.as_json())
        self.report = report
        self.recorder.event(Kind.REVIEW_JUDGED, _counted(raw, report))
        return _result(report)

    def _task(self, case: Case, hunks: Sequence[Hunk]) -> Task:
        spared, story = self._spared(hunks), self._story(case)
        chosen = choose(hunks, DIFF_SHOWN, spared)
        shown = self.redact("".join(told(hunks, chosen)))
        changed = manifest(hunks, case.candidate.changes, chosen, spared)
        if names := moved(case.candidate.changes, self.terms.depends):
            changed += f"\n{_LACKING.format(names)}"
        few = f"{len(chosen)} of {len(hunks)} hunks; read the others:"
        variables = {
            "diff": _fenced("diff", shown),
            "diff_note": "The whole diff:" if len(chosen) == len(hunks) else few,
            "changed": self.redact(changed),
            "checks": "\n".join(_told(report) for report in self.reports()) or "none were run",
            "story": _fenced("story", story) if story else "",
        }
        facts = {
            "hunks": hunks,
            "shown": frozenset(n for n in chosen if not hunks[n].elsewhere) | spared,
            "story": story,
            "read_candidate": lambda path: self._read(case.candidate.tree, path),
            "read_base": lambda path: self._read(case.base, path),
        }
        return Task(variables, facts)

    def _story(self, case: Case) -> str:
        parts = [case.item.title, case.item.brief, self.terms.claims]
        return self.redact("\n\n".join(part.strip() for part in parts if part.strip()))

    def _read(self, tree: str, path: str) -> bytes | None:
        """A file as the model sees it: a key in it is no text that could be quoted."""
        data = self.surface.read(tree, path)
        text = None if data is None else self.redact(data.decode("utf-8", "surrogateescape"))
        return None if text is None else text.encode("utf-8", "surrogateescape")

    def _key(self, case: Case, task: Task) -> str:
        asked = {"prompts": dict(self.role.prompt_digests), "tools": self.role.tools, "task": task.variables}
        return digest(canonical({"base": case.base, "tree": case.candidate.tree, **self.terms.inputs, **asked}))

    def _ask(self, case: Case, hunks: Sequence[Hunk], task: Task) -> ReviewReport:
        """What the reviewer found, its own word as the verdict; inconclusive where it gave none."""
        with self.surface.open(self.surface.wordless(case.candidate)) as (sandbox, unchanged):
            environment = self.surface.environment(sandbox)
            result = self.surface.ask(task, environment)
            intact = unchanged()
        empty = self._empty(case, hunks)
        if not intact:
            return replace(empty, reason="the reviewed tree changed during the review, so the review is void")
        lost = {} if result.ended is Ended.SUBMITTED else _no_verdict(result)
        if result.accepted is None or result.ended is Ended.CANCELLED:
            return replace(empty, **lost)
        said, earlier = result.accepted, self._earlier(case)
        prover = Prover(
            self.surface.checkout, self.recorder, environment.screen, moved(case.candidate.changes, self.terms.depends)
        )
        findings = [self._finding(one, case, prover) for one in said["findings"]]
        if earlier:
            placed = [earlier.place(one) for one in findings]
            findings = placed + [one for one in earlier.standing(placed) if self._stands(one, case, hunks, prover)]
        return replace(
            empty,
            verdict=said["verdict"],
            exit=lost.get("exit", 0),
            unheard=lost.get("reason", ""),
            summary=said["summary"],
            confidence=float(said["confidence"]),
            findings=tuple(findings),
            claims=tuple(_claim(one) for one in said["claims"]),
            unseen=tuple(said["unseen"]),
            blind=said.get("blind", said["verdict"]),
            told=said.get("told", ""),
        )

    def _spared(self, hunks: Sequence[Hunk]) -> frozenset[int]:
        """The hunks that need not be read."""
        return frozenset(number for number, hunk in enumerate(hunks) if matches(hunk.path, self.terms.unread))

    def _empty(self, case: Case, hunks: Sequence[Hunk]) -> ReviewReport:
        commit, code = case.candidate.commit, int(Exit.INCONCLUSIVE)
        unread = tuple(hunks[number].name for number in sorted(self._spared(hunks)))
        return ReviewReport(
            self.terms.run, case.base, commit, "inconclusive", code, "", hunks=len(hunks), unread=unread
        )

    def _finding(self, one: JSON, case: Case, prover: Prover) -> ReviewFinding:
        tree = case.candidate.tree if one["side"] == "head" else case.base
        data = self._read(tree, one["path"]) or b""
        proof, note = Proof.VERIFIED if one["sound"] else Proof.UNVERIFIED, one["doubt"]
        if script := one.get("reproducer", ""):
            failed = prover(script, case.base, case.candidate.commit)
            proof, note = (proof, failed) if failed else (Proof.PROVEN, "")
        demoted = "" if one["inside"] else OUTSIDE
        if not demoted and one["wanted"] and proof is Proof.UNVERIFIED:
            demoted = f"unverified: {one['doubt']}"
        texts: dict[str, Any] = {n: one[n] for n in ("title", "body", "severity", "kind", "path", "side", "quote")}
        return ReviewFinding(
            **texts,
            line=one["line"],
            end_line=one["end_line"],
            proof=proof,
            blocking=one["wanted"] and not demoted,
            fingerprint=fingerprint(one["path"], one["kind"], one["quote"], data, one["line"]),
            evidence=tuple(one["seqs"]),
            reproducer=script,
            demoted=demoted,
            note=note,
        )

    def _earlier(self, case: Case) -> Round | None:
        """The newest judged head of the same work that this one goes on from."""
        if not self.terms.target:
            return None
        head = case.candidate.commit
        for stored in self.verdicts.earlier(self.terms.target):
            before = ReviewReport.from_json(stored)
            try:
                if before.head != head and self.surface.contains(head, before.head):
                    return Round(before, parse(self.surface.diff(before.head, head)), case.base)
            except GitFault:
                continue  # that head is not here any more
        return None

    def _stands(self, one: ReviewFinding, case: Case, hunks: Sequence[Hunk], prover: Prover) -> bool:
        """Whether an earlier finding in an untouched file still holds: in the change, and as proven as it was."""
        inside = any(h.path == one.path and h.touches(one.side, one.line, one.end_line) for h in hunks)
        proven = inside and one.proof is Proof.PROVEN
        return inside and not (proven and prover(one.reproducer, case.base, case.candidate.commit) == MENDED)


def _fenced(name: str, text: str) -> str:
    """A text between marks that it cannot hold: it does not hold its own digest."""
    mark = f"{name} {digest(text)[7:19]}"
    return f"<{mark}>\n{text}\n</{mark}>"


def _no_verdict(result: RoleResult) -> dict[str, Any]:
    known = {Ended.CREDENTIALS: Exit.CREDENTIALS, Ended.CANCELLED: Exit.INTERRUPTED}
    code = Exit.LIMIT if result.ended.is_limit else known.get(result.ended, Exit.INCONCLUSIVE)
    why = f"no verdict: the reviewer's run ended {result.ended}: {result.detail}"
    return {"exit": int(code), "reason": f"{why} (this report is the harness's own, not a reviewer's)"}


def _claim(one: JSON) -> ReviewClaim:
    return ReviewClaim(one["statement"], Support(one["support"]), one["why"], tuple(one["seqs"]))


def _counted(raw: ReviewReport, report: ReviewReport) -> dict[str, Any]:
    return {
        "altered": bool(raw.told) and raw.verdict != raw.blind,
        "verdict": report.verdict,
        "blind": report.blind,
        "told": report.told,
        "findings": len(report.findings),
        "proofs": dict(Counter(str(one.proof) for one in report.findings)),
        "unsupported": sum(one.support is Support.UNSUPPORTED for one in report.claims),
        "remembered": report.remembered,
    }


def _result(report: ReviewReport) -> GateResult:
    evidence = {"verdict": report.verdict, "exit": report.exit, "report": report.as_json()}
    if report.verdict == "pass":
        return GateResult("review", GateOutcome.PASS, (), evidence)
    if report.verdict != "fail":
        return GateResult("review", GateOutcome.ERROR, (report.reason,), evidence)
    told = tuple(
        f"{one.severity} {one.path}:{one.line} {one.title} ({one.proof}): {one.body}"
        for one in sorted(report.findings, key=lambda one: not one.blocking)
        if not one.waiver
    )
    return GateResult("review", GateOutcome.FAIL, told, evidence)


def _told(report: CheckReport) -> str:
    counts = report.counts
    told = f", {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped" if counts else ""
    return f"`{report.check.command}`: {'passes' if report.passed else 'fails'}{told}"
