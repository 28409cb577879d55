"""Severity gates and agreement of several passes, on reports alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from agent_harness.passes import agreed, gated
from agent_harness.types import Disposition, Proof, ReviewClaim, Support
from fakes.reviews import FINDING, UNVERIFIED, WAIVED, finding, report

GOOD = report(verdict="pass", exit=0, reason="nothing was found")
BAD = report(FINDING)
DOUBTFUL = finding(proof=Proof.UNVERIFIED, severity="P0", blocking=False, demoted="unverified: no event shows it")
LOST = report(verdict="inconclusive", exit=6, reason="the spend limit is reached")


@pytest.mark.parametrize(
    ("found", "fail_on", "verdict"),
    [
        ((), "P3", "pass"),
        ((finding(severity="P2", blocking=False),), "P2", "fail"),
        ((finding(severity="P2", blocking=False),), "P1", "pass"),
        ((FINDING,), "P0", "pass"),
        ((UNVERIFIED,), "P3", "pass"),
        ((WAIVED,), "P3", "pass"),
        ((finding(demoted="outside the change", blocking=False),), "P3", "pass"),
        ((finding(proof=Proof.PROVEN, severity="P3", blocking=False),), "P3", "fail"),
    ],
)
def test_a_severity_gate_counts_only_what_code_stands_behind(found, fail_on, verdict):
    told = gated(report(*found), fail_on)
    assert (told.verdict, told.exit) == (verdict, {"pass": 0, "fail": 1}[verdict])
    assert any(one.blocking for one in told.findings) == (verdict == "fail")
    assert fail_on in told.reason


@pytest.mark.parametrize(
    ("more", "fail_on", "verdict"),
    [
        ({"unseen": ("big.py:1-900",)}, "P0", "inconclusive"),
        ({"unseen": ("big.py:1-900",)}, "P1", "fail"),
        ({"findings": (FINDING, DOUBTFUL)}, "P0", "inconclusive"),
        ({"findings": (FINDING, replace(DOUBTFUL, severity="P2"))}, "P0", "pass"),
    ],
)
def test_a_lesser_finding_hides_nothing_that_forbids_a_pass(more, fail_on, verdict):
    assert gated(replace(BAD, **more), fail_on).verdict == verdict


def test_without_a_severity_the_reviewers_word_stands_and_inconclusive_always_does():
    assert gated(BAD, "") is BAD
    assert gated(LOST, "P0").verdict == "inconclusive"
    assert gated(report(verdict="inconclusive", exit=3, reason="x"), "P3").exit == 3


def test_no_mixture_with_an_inconclusive_pass_is_a_pass():
    for mixture in product((GOOD, BAD, LOST), repeat=3):
        told = agreed(mixture)
        bad, lost = mixture.count(BAD), mixture.count(LOST)
        assert told.verdict == ("fail" if bad >= 2 else "inconclusive" if lost else "pass")
        assert told.exit == {"fail": 1, "inconclusive": 6, "pass": 0}[told.verdict]
        assert ", ".join(one.verdict for one in mixture) in told.reason


@pytest.mark.parametrize(
    ("passes", "votes", "blocks"),
    [(2, 1, False), (2, 2, True), (3, 1, False), (3, 2, True), (4, 2, False), (5, 3, True)],
)
def test_a_verified_finding_needs_more_than_half(passes, votes, blocks):
    told = agreed([BAD] * votes + [GOOD] * (passes - votes))
    (one,) = told.findings
    assert one.blocking is blocks and told.verdict == ("fail" if blocks else "pass")
    assert blocks or one.demoted == f"only {votes} of {passes} passes found it so grave"


def test_a_proven_finding_blocks_alone_and_an_unverified_one_never():
    proven = report(finding(proof=Proof.PROVEN))
    assert agreed([GOOD, GOOD, proven]).verdict == "fail"
    assert agreed([LOST, GOOD, proven]).exit == 1
    fabricated = report(UNVERIFIED, verdict="pass", exit=0)
    assert agreed([fabricated] * 3).verdict == "pass"
    waived = report(finding(proof=Proof.PROVEN, disposition=Disposition.WAIVED, blocking=False), verdict="pass", exit=0)
    assert agreed([waived] * 3).verdict == "pass"


def test_one_fault_in_other_words_is_one_finding():
    other = finding(title="Cents vanish in split()", line=13, end_line=20, fingerprint="0" * 32)
    apart = finding(line=40, end_line=41, fingerprint="1" * 32)
    base = finding(side="base", fingerprint="2" * 32)
    told = agreed([report(FINDING), report(other, apart), report(base, verdict="pass", exit=0)])
    assert len(told.findings) == 3
    assert [one.blocking for one in told.findings] == [True, False, False]
    assert agreed([report(FINDING, other), GOOD]).verdict == "pass"  # one pass has one vote


def test_what_passes_say_of_the_story_is_taken_at_its_worst():
    claims = [ReviewClaim("tests were run", support, "") for support in Support]
    told = agreed([report(claims=(one,), unseen=("a:1-2",), confidence=0.4) for one in claims])
    assert [one.support for one in told.claims] == [Support.UNSUPPORTED]
    assert told.unseen == ("a:1-2",) and told.confidence == 0.4
    assert len(told.receipt["passes"]) == 3 and len(told.run.split()) == 3


def test_most_passes_that_fail_for_other_reasons_each_are_no_pass():
    apart = [report(finding(line=n, end_line=n, fingerprint=f"{n}" * 32)) for n in (1, 5, 9)]
    told = agreed(apart)
    assert (told.verdict, told.exit) == ("inconclusive", 3) and "no two agree why" in told.reason
    assert agreed([*apart[:1], GOOD, GOOD]).verdict == "pass"
