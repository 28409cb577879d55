"""Around one review: what is to be reviewed, what it could cost, which severity fails it, and several passes as one."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_harness.errors import Exit, NothingToDo, UsageError
from agent_harness.gates import hunks
from agent_harness.gates.dispositions import settle
from agent_harness.gates.review import DIFF_SHOWN, Terms
from agent_harness.parts import Parts, Work
from agent_harness.reviewing import review
from agent_harness.types import Limits, ReviewFinding, ReviewReport
from agent_harness.workspace.source import locate, shallow_ends

ENDS = {"pass": Exit.OK, "fail": Exit.FAILED}
PROOFS = ("proven", "verified", "unverified")
GRAVITY = ("supported", "not_checked", "unsupported")
DEEPER = "`git fetch --unshallow` (in CI: fetch-depth: 0 for actions/checkout, GIT_DEPTH: 0 for GitLab)"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be reviewed, and how. `patch` takes the place of `head`; `fail_on` that of the reviewer's own word."""

    base: str
    head: str
    patch: bytes | None = None
    claims: str = ""
    fail_on: str = ""
    passes: int = 1
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class ReviewPlan:
    """What a review would look at, and the most it could cost."""

    base: str
    head: str
    files: int
    hunks: int
    shown: int
    diff_bytes: int
    routes: tuple[str, ...]
    limits: Limits
    passes: int
    worst_nanousd: int


def judge(parts: Parts, ask: Ask, name: Callable[[], str], stop: threading.Event) -> ReviewReport:
    """Review in as many passes as asked, each with a run of its own. Several never take each other's stored verdict."""
    base, head = resolved(parts, ask)
    several = ask.passes > 1
    tip = parts.repository.fetch(parts.source, ask.base)
    terms = Terms(claims=ask.claims, target=ask.base, tip=tip, fresh=ask.fresh or several)
    reports = [
        gated(review(parts, Work(name()), base, head, stop, terms=terms), ask.fail_on) for _ in range(ask.passes)
    ]
    return agreed(reports) if several else reports[0]


def plan(parts: Parts, ask: Ask) -> ReviewPlan:
    """What `judge` would do. No model is asked, no sandbox made."""
    base, head = resolved(parts, ask)
    diff = parts.repository.diff(base, head)
    found = hunks.parse(diff)
    role, whole = parts.role("reviewer").limits, parts.config.limits.limits
    return ReviewPlan(
        base=base,
        head=head,
        files=len(parts.repository.changes(base, head)),
        hunks=len(found),
        shown=len(hunks.choose(found, DIFF_SHOWN)),
        diff_bytes=len(diff),
        routes=parts.config.routes_of("reviewer"),
        limits=role,
        passes=ask.passes,
        worst_nanousd=min(role.nanousd, whole.nanousd) * ask.passes,  # each one conversation, with the story in it
    )


def resolved(parts: Parts, ask: Ask) -> tuple[str, str]:
    """The two commits in the harness's own repository: where the change left base, and head.

    Raises UsageError for a ref or history that is not there and for a patch that does not apply, NothingToDo where
    nothing differs."""
    repository, source = parts.repository, locate(parts.source)
    base = repository.fetch(parts.source, ask.base)
    if ask.patch is not None:
        head = repository.apply(base, ask.patch)
    else:
        head = repository.fetch(parts.source, ask.head)
        git = repository.git if source.url else source.git  # ours may have come from a clone that was shallow then
        found = git.attempt("merge-base", "--all", "--end-of-options", base, head).out.decode("ascii").split()
        if len(found) > 1:  # against any one of them, what the others brought and head takes back would not show
            why = f"{ask.base} and {ask.head} meet in {len(found)} commits, none of which has all that both have"
            raise UsageError("cannot tell what the change is", why=why, next=f"merge {ask.base} into the head")
        met = "".join(found)
        if not met and shallow_ends(git):
            why = f"the clone is shallow, and {ask.base} and {ask.head} meet below where it is cut"
            raise UsageError("cannot tell what the change is", why=why, next=DEEPER)
        base = repository.fetch(parts.source, met) if met else base
    if repository.tree_of(base) == repository.tree_of(head):
        raise NothingToDo(f"nothing differs between {base[:12]} and {head[:12]}", next="name others: --base, --head")
    return base, head


def gated(report: ReviewReport, fail_on: str) -> ReviewReport:
    """The report with what blocks set by severity. Only what counts does; inconclusive stays so."""
    if not fail_on:
        return report
    found = tuple(replace(one, blocking=one.counts and one.severity <= fail_on) for one in report.findings)
    if report.verdict not in ENDS:
        return replace(report, findings=found)
    # what was fail for a lesser finding is no pass where hunks were unseen, or what is so grave is merely unproven
    grave = tuple(one for one in found if one.severity <= fail_on)
    if (ended := settle(replace(report, findings=grave), {})).verdict not in ENDS:
        return replace(ended, findings=found)
    return concluded(replace(report, findings=found), f"{sum(one.blocking for one in found)} of {fail_on} or graver")


def concluded(report: ReviewReport, why: str) -> ReviewReport:
    """The report with the verdict that its findings make, for a reason of code's."""
    verdict = "fail" if any(one.blocking for one in report.findings) else "pass"
    first = next((f": {one.path}:{one.line} {one.title}" for one in report.findings if one.blocking), "")
    return replace(report, verdict=verdict, exit=int(ENDS[verdict]), reason=f"{why}{first}")


def agreed(reports: Sequence[ReviewReport]) -> ReviewReport:
    """Passes as one report. A finding blocks where it is proven in any pass, or counts and blocks in more than half
    of them; what fewer found is told with their number. Without that, one inconclusive pass makes all so, and so do
    most passes that fail the change, each for a reason of its own."""
    groups = list[list[tuple[int, ReviewFinding]]]()
    for number, report in enumerate(reports):
        for one in report.findings:
            group = next((g for g in groups if any(same(one, other) for _, other in g)), None)
            groups.append([(number, one)]) if group is None else group.append((number, one))
    told = sorted((one for report in reports for one in report.claims), key=lambda one: GRAVITY.index(one.support))
    claims = {one.statement: one for one in told}  # the worst that was said of each
    whole = replace(
        reports[0],
        run=" ".join(report.run for report in reports),
        confidence=min(report.confidence for report in reports),
        findings=tuple(voted(group, len(reports)) for group in groups),
        claims=tuple(claims.values()),
        unseen=tuple(dict.fromkeys(one for report in reports for one in report.unseen)),
        remembered=all(report.remembered for report in reports),
        receipt={"passes": [report.receipt for report in reports]},
    )
    why = f"{len(reports)} passes ({', '.join(report.verdict for report in reports)})"
    lost = next((report for report in reports if report.verdict not in ENDS), None)
    if lost and not any(one.blocking for one in whole.findings):
        return replace(whole, verdict=lost.verdict, exit=lost.exit, reason=f"{why}: {lost.reason}")
    ended = concluded(whole, why)
    if ended.verdict == "pass" and sum(report.verdict == "fail" for report in reports) * 2 > len(reports):
        reason = f"{why}: most fail the change, and no two agree why"
        return replace(ended, verdict="inconclusive", exit=int(Exit.INCONCLUSIVE), reason=reason)
    return ended


def same(one: ReviewFinding, other: ReviewFinding) -> bool:
    """Whether two passes speak of one fault: by fingerprint, or by overlapping lines of one side of one file."""
    met = one.line <= other.end_line and other.line <= one.end_line
    return one.fingerprint == other.fingerprint or ((one.path, one.side) == (other.path, other.side) and met)


def voted(group: Sequence[tuple[int, ReviewFinding]], passes: int) -> ReviewFinding:
    """What several passes said of one fault, in the words of the one that stands firmest."""
    _, best = min(group, key=lambda row: (not row[1].blocking, PROOFS.index(row[1].proof), row[1].severity))
    votes = len({number for number, one in group if one.blocking and one.counts})
    if not best.blocking or votes * 2 > passes or (best.counts and best.proof == "proven"):
        return best
    return replace(best, blocking=False, demoted=f"only {votes} of {passes} passes found it so grave")
