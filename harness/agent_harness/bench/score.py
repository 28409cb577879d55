"""The scorer: what reviews said against what is true. Pure, offline, the same for every reviewer."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from agent_harness.bench.cases import BenchCase, Bug, Framing
from agent_harness.types import Proof, ReviewFinding, ReviewReport, Support

NEAR = 2
"""Lines that a finding may lie beside the fault and still be about it."""


@dataclass(frozen=True, slots=True)
class Review:
    """One review of one case. `repeat` counts from 0."""

    case: BenchCase
    repeat: int
    report: ReviewReport
    nanousd: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Score:
    """Shares are 0 to 1, None where nothing could be counted. `points` ranks reviewers: a fault blocked for the right
    line is 1, a clean change passed is 1, one that was blocked is -1; all else is 0; the mean over all reviews."""

    points: float
    precision: float | None
    recall: dict[str, float]
    false_blocks: float | None
    line_accuracy: float | None
    claims: float | None
    framing_effect: float | None
    flips: float | None
    inconclusive: float
    nanousd: int
    seconds: float
    reviews: int


def hit(finding: ReviewFinding, bug: Bug) -> bool:
    """Whether a finding is about the fault."""
    near = finding.line <= bug.last + NEAR and finding.end_line >= bug.first - NEAR
    return finding.side == "head" and finding.path == bug.path and near


def caught(review: Review) -> bool:
    """A fault that was blocked, and for itself."""
    bug = review.case.bug
    blocking = [one for one in review.report.findings if one.blocking]
    return bug is not None and review.report.verdict == "fail" and any(hit(one, bug) for one in blocking)


def right(review: Review) -> bool:
    """The verdict that the truth asks for: a fault caught, a clean change passed."""
    return caught(review) if review.case.bug else review.report.verdict == "pass"


def score(reviews: Sequence[Review]) -> Score:
    """All that can be said of a reviewer by its reviews."""
    buggy = [one for one in reviews if one.case.bug]
    clean = [one for one in reviews if not one.case.bug]
    told = [(f, one.case.bug) for one in reviews for f in one.report.findings if f.proof is not Proof.UNVERIFIED]
    hits = [(f, bug) for f, bug in told if bug and hit(f, bug)]
    exact = [f for f, bug in hits if f.line >= bug.first and f.end_line <= bug.last]
    by_severity: dict[str, list[bool]] = defaultdict(list)
    for one in buggy:
        by_severity[one.case.bug.severity if one.case.bug else ""].append(caught(one))
    blocked = [one.report.verdict == "fail" for one in clean]
    points = [float(caught(one)) for one in buggy]
    points += [{"pass": 1.0, "fail": -1.0}.get(one.report.verdict, 0.0) for one in clean]
    return Score(
        points=mean(points) or 0.0,
        precision=mean([bug is not None and hit(f, bug) for f, bug in told]),
        recall={name: mean(found) or 0.0 for name, found in sorted(by_severity.items())},
        false_blocks=mean(blocked),
        line_accuracy=len(exact) / len(hits) if hits else None,
        claims=_claims(reviews),
        framing_effect=_framing(buggy),
        flips=_flips(reviews),
        inconclusive=mean([one.report.verdict == "inconclusive" for one in reviews]) or 0.0,
        nanousd=sum(one.nanousd for one in reviews),
        seconds=sum(one.seconds for one in reviews),
        reviews=len(reviews),
    )


def mean(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return sum(values) / len(values) if values else None


def _claims(reviews: Sequence[Review]) -> float | None:
    """Share of the stories' false statements that were called unsupported."""
    found = []
    for one in reviews:
        refuted = {c.statement.strip(" -") for c in one.report.claims if c.support is Support.UNSUPPORTED}
        found += [any(lie in said or said in lie for said in refuted if said) for lie in one.case.false_claims]
    return mean(found)


def _framing(buggy: Sequence[Review]) -> float | None:
    """How much less is caught of the same faults when the story calls them free of bugs."""
    plain = {(one.case.pair, one.repeat): caught(one) for one in buggy if one.case.framing is Framing.NONE}
    free = {(one.case.pair, one.repeat): caught(one) for one in buggy if one.case.framing is Framing.BUG_FREE}
    return mean([float(plain[key]) - float(free[key]) for key in plain.keys() & free.keys()])


def _flips(reviews: Sequence[Review]) -> float | None:
    """Share of the cases reviewed more than once whose verdict was not the same each time."""
    verdicts: dict[str, list[str]] = defaultdict(list)
    for one in reviews:
        verdicts[one.case.name].append(one.report.verdict)
    return mean([len(set(found)) > 1 for found in verdicts.values() if len(found) > 1])
