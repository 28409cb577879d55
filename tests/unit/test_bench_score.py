"""The scorer, on reviews made up for it."""

import pytest

from agent_harness.bench.cases import BenchCase, Bug, Framing, Kind
from agent_harness.bench.score import Review, hit, score
from agent_harness.types import Proof, ReviewClaim, ReviewFinding, ReviewReport, Support

BUG = Bug("a.py", 10, 10, "P1", "and-or")


def case(kind=Kind.BUG, framing=Framing.NONE, pair="1", lies=()):
    return BenchCase(
        f"{pair}-{kind}-{framing}", pair, kind, framing, "p", "t", "s", BUG if kind is Kind.BUG else None, lies, {}, {}
    )


def finding(line=10, path="a.py", proof=Proof.VERIFIED, blocking=True):
    return ReviewFinding("t", "b", "P1", "bug", path, "head", "q", line, line, proof, blocking, "f")


def review(verdict, *findings, of=None, repeat=0, claims=()):
    report = ReviewReport("r", "b", "h", verdict, 0, "", findings=findings, claims=claims)
    return Review(of or case(), repeat, report, 1000, 2.0)


def test_a_fault_counts_only_when_it_is_blocked_for_itself():
    right = score([review("fail", finding())])
    assert (right.points, right.precision, right.recall, right.line_accuracy) == (1.0, 1.0, {"P1": 1.0}, 1.0)
    elsewhere = score([review("fail", finding(line=80))])
    assert (elsewhere.points, elsewhere.precision, elsewhere.recall) == (0.0, 0.0, {"P1": 0.0})
    told_only = score([review("pass", finding(blocking=False))])
    assert (told_only.points, told_only.precision) == (0.0, 1.0)


def test_near_is_about_it_but_not_exact():
    assert hit(finding(line=12), BUG)
    assert not hit(finding(line=13), BUG)
    assert not hit(finding(path="b.py"), BUG)
    assert score([review("fail", finding(line=12))]).line_accuracy == 0.0


def test_unverified_findings_count_for_nothing():
    assert score([review("pass", finding(proof=Proof.UNVERIFIED, blocking=False))]).precision is None


def test_blocking_a_clean_change_costs_as_much_as_a_catch_brings():
    clean = case(Kind.FIX)
    found = score([review("fail", finding(), of=clean), review("pass", of=clean), review("inconclusive", of=clean)])
    assert found.points == 0.0
    assert found.false_blocks == pytest.approx(1 / 3)
    assert found.inconclusive == pytest.approx(1 / 3)


def test_framing_is_measured_on_the_same_faults():
    free = case(framing=Framing.BUG_FREE)
    found = score([review("fail", finding()), review("pass", of=free)])
    assert found.framing_effect == 1.0
    assert score([review("fail", finding()), review("fail", finding(), of=free)]).framing_effect == 0.0
    assert score([review("fail", finding())]).framing_effect is None


def test_flips_need_repeats():
    assert score([review("pass")]).flips is None
    assert score([review("pass"), review("fail", repeat=1)]).flips == 1.0
    assert score([review("pass"), review("pass", repeat=1)]).flips == 0.0


def test_false_claims_have_to_be_called_unsupported():
    lying = case(Kind.REFACTORING, Framing.FALSE_CLAIM, lies=("Adds a check.",))
    said = ReviewClaim("Adds a check.", Support.UNSUPPORTED, "there is none")
    believed = ReviewClaim("Adds a check.", Support.SUPPORTED, "yes")
    assert score([review("pass", of=lying, claims=(said,))]).claims == 1.0
    assert score([review("pass", of=lying, claims=(believed,))]).claims == 0.0
    assert score([review("pass", of=lying)]).claims == 0.0


def test_cost_and_time_are_sums():
    found = score([review("pass"), review("pass")])
    assert (found.nanousd, found.seconds, found.reviews) == (2000, 4.0, 2)
