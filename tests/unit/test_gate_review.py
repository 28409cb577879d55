"""The review gate: what a verdict rests on is code's, and what is remembered is only what held."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent_harness.errors import ConfigError, GitFault, SandboxLost
from agent_harness.gates import Case
from agent_harness.gates.dispositions import WAIVERS, fingerprint, waivers
from agent_harness.gates.hunks import choose, manifest, parse, told
from agent_harness.gates.prove import MOST, Prover
from agent_harness.gates.review import ReviewGate, ReviewSurface, Terms
from agent_harness.ports import Environment
from agent_harness.reviewing import NO_ITEM
from agent_harness.types import (
    Candidate,
    Change,
    CommandEnd,
    Disposition,
    Ended,
    Limits,
    Mode,
    Proof,
    ReviewReport,
    Role,
    RoleResult,
    Spend,
)
from agent_harness.types.text import clean
from fakes.model import FakeModel
from fakes.recorder import FakeClock, FakeRecorder
from fakes.sandbox import FakeSandbox, result

FILES = {"head": b"def run(x):\n    a = x[0]\n    b = 2\n    return a\n", "base": b"def run(x):\n    return None\n"}
DIFF = b"""diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,2 +1,4 @@
 def run(x):
-    return None
+    a = x[0]
+    b = 2
+    return a
"""
LATER = b"""diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -2,2 +2,3 @@
     a = x[0]
+    b = 2
     return a
"""
ROLE = Role("reviewer", Mode.RO, "", "", {"system.md": "1"}, ("bash", "submit"), {}, Limits(1, 1, 1, 1.0), 1.0)


class FakeVerdicts:
    """What `store.verdicts.Verdicts` does, in memory."""

    def __init__(self):
        self.rows = {}

    def recall(self, key):
        return self.rows.get(key, (None, None))[1]

    def remember(self, key, target, at_ms, report):
        self.rows[key] = (target, report)

    def earlier(self, target):
        return [report for name, report in reversed(self.rows.values()) if name == target]


def finding(**change):
    return {
        "title": "run fails on an empty list",
        "body": "IndexError, where it gave None before.",
        "severity": "P1",
        "kind": "correctness",
        "path": "app.py",
        "side": "head",
        "quote": "    a = x[0]",
        "line": 2,
        "end_line": 2,
        "inside": True,
        "wanted": True,
        "sound": True,
        "doubt": "",
        "seqs": [7],
        **change,
    }


def said(word, *findings, **change):
    more = {"claims": [], "unseen": [], "summary": "It reads the first.", "confidence": 0.8}
    return {"verdict": word, "findings": list(findings), **more, **change}


class Kit:
    """A gate over fakes. `answers` are what the reviewer submits, call after call."""

    def __init__(self, *answers, files=None, exits=None, clock=None):
        self.answers, self.asked, self.head = list(answers), 0, "h1"
        self.files = {("base", WAIVERS): None} | (files or {})
        self.exits = exits or {}
        self.recorder, self.clock, self.verdicts = FakeRecorder(), clock or FakeClock(), FakeVerdicts()
        self.intact, self.trees, self.parents = True, [], {}
        self.diff, self.changed_since = DIFF, LATER

    def judge(self, **terms):
        @contextmanager
        def opened(candidate):
            self.trees.append(candidate.commit)
            yield FakeSandbox(Path()), lambda: self.intact

        @contextmanager
        def checkout(commit, purpose):
            yield FakeSandbox(Path(), act=lambda _: self.exit(purpose))

        surface = ReviewSurface(
            open=opened,
            checkout=checkout,
            wordless=lambda candidate: replace(candidate, commit="wordless"),
            diff=lambda old, new: self.diff if old == "base" else self.changed_since,
            read=lambda tree, path: self.files.get((tree, path), FILES.get("head" if tree == "tree" else "base")),
            contains=self.contains,
            environment=lambda sandbox: Environment(sandbox, FakeModel(()), self.recorder, self.clock, str),
            ask=self.ask,
        )
        gate = ReviewGate(
            surface,
            ROLE,
            terms=Terms(run="run", **terms),
            verdicts=self.verdicts,
            recorder=self.recorder,
            clock=self.clock,
            redact=str,
            reports=list,
        )
        change = Change(b"app.py", "M", "100644", "100644", 1, binary=False)
        self.gate_result = gate.judge(Case(NO_ITEM, "base", Candidate("base", "tree", self.head, (change,))))
        assert gate.report is not None
        return gate.report

    def exit(self, purpose):
        found = self.exits.get(purpose, self.exits.get("reproduce-head"))  # again as before, unless said
        if isinstance(found, Exception):
            raise found
        return found if not isinstance(found, int) else result("out", found)

    def contains(self, head, before):
        if before not in self.parents.get(head, ()):
            raise GitFault("no such commit")
        return True

    def ask(self, task, environment):
        self.task, self.asked = task, self.asked + 1
        answer = self.answers.pop(0)
        ended, accepted = answer if isinstance(answer, tuple) else (Ended.SUBMITTED, answer)
        if isinstance(answer, Ended):
            ended, accepted = answer, None
        submission = accepted if ended is Ended.SUBMITTED else None
        return RoleResult("reviewer", "r-1", ended, "why", submission, Spend(), 1.0, accepted)


def test_a_verified_finding_blocks_and_a_pass_passes():
    report = Kit(said("fail", finding())).judge()
    (one,) = report.findings
    assert (report.verdict, report.exit, one.proof, one.blocking) == ("fail", 1, Proof.VERIFIED, True)
    assert (one.evidence, one.line, report.hunks) == ((7,), 2, 1)
    report = Kit(said("pass")).judge()
    assert (report.verdict, report.exit, report.confidence) == ("pass", 0, 0.8)


def test_what_is_not_verified_never_fails_and_never_passes_a_fail():
    kit = Kit(said("fail", finding(sound=False, doubt="event 9 is none")))
    report = kit.judge()
    assert (report.verdict, report.exit) == ("inconclusive", 3) and "event 9 is none" in report.reason
    assert report.findings[0].proof is Proof.UNVERIFIED and not report.findings[0].counts
    assert kit.verdicts.rows == {}


def test_a_finding_outside_the_change_is_demoted():
    report = Kit(said("pass", finding(inside=False))).judge()
    assert (report.verdict, report.findings[0].blocking) == ("pass", False)
    assert "outside" in report.findings[0].demoted and not report.findings[0].counts


def test_unseen_hunks_forbid_a_pass_but_not_a_fail():
    report = Kit(said("pass", unseen=["app.py:1-4"])).judge()
    assert (report.verdict, report.exit, report.unseen) == ("inconclusive", 3, ("app.py:1-4",))
    assert "app.py:1-4" in report.reason
    assert Kit(said("fail", finding(), unseen=["app.py:1-4"])).judge().verdict == "fail"


def test_the_prompt_shows_nothing_of_a_submodule():
    kit = Kit(said("pass"))
    kit.diff = DIFF + b"diff --git a/lib b/lib\nnew file mode 160000\n--- /dev/null\n+++ b/lib\n@@ -0,0 +1 @@\n+Sub\n"
    kit.judge()
    assert kit.task.facts["shown"] == {0} and len(kit.task.facts["hunks"]) == 2


def test_a_changed_tree_and_a_run_without_a_verdict_are_labelled_and_inconclusive():
    kit = Kit(said("pass"))
    kit.intact = False
    assert "void" in kit.judge().reason
    codes = {Ended.MALFORMED: 3, Ended.LIMIT_STEPS: 6, Ended.CREDENTIALS: 4, Ended.CANCELLED: 130, Ended.LOOP: 3}
    for ended, code in codes.items():
        report = Kit(ended).judge()
        assert (report.verdict, report.exit, report.findings) == ("inconclusive", code, ())
        assert "the harness's own" in report.reason


@pytest.mark.parametrize(
    ("head", "base", "proof", "note"),
    [
        (1, 0, Proof.PROVEN, ""),
        (139, 0, Proof.PROVEN, ""),
        (0, 0, Proof.VERIFIED, "passes on head"),
        (1, 1, Proof.VERIFIED, "fails (exit code 1) on base"),
        (127, 0, Proof.VERIFIED, "could not run"),
        (1, 126, Proof.VERIFIED, "could not run"),
        (result("", -1, CommandEnd.TIMEOUT), 0, Proof.VERIFIED, "did not end by itself"),
        (result("", -1, CommandEnd.OUT_OF_MEMORY), 0, Proof.VERIFIED, "did not end by itself"),
        (1, result("", -1, CommandEnd.TIMEOUT), Proof.VERIFIED, "did not end by itself"),
        (SandboxLost("gone"), 0, Proof.VERIFIED, "could not be run"),
    ],
)
def test_only_a_reproducer_that_fails_on_head_and_passes_on_base_proves(head, base, proof, note):
    kit = Kit(said("fail", finding(reproducer="true")), exits={"reproduce-head": head, "reproduce-base": base})
    (one,) = kit.judge().findings
    assert one.proof is proof and (note in one.note) == (one.note != "" or not note)
    assert one.reproducer == "true"
    unsound = Kit(said("fail", finding(reproducer="true", sound=False, doubt="x")), exits=kit.exits)
    report = unsound.judge()
    assert report.verdict == ("fail" if proof is Proof.PROVEN else "inconclusive")
    commands = [one["where"] for one in kit.recorder.of("command.started")]
    assert commands[:1] == ["reproduce-head"] or isinstance(head, Exception)


def test_a_reproducer_that_fails_only_at_times_proves_nothing():
    exits = {"reproduce-head": 1, "reproduce-base": 0, "reproduce-again": 0}
    (one,) = Kit(said("fail", finding(reproducer="t")), exits=exits).judge().findings
    assert one.proof is Proof.VERIFIED and "at one time" in one.note


@pytest.mark.parametrize(
    ("depends", "output", "proof"),
    [
        (("app.*",), "ModuleNotFoundError: No module named 'newdep'", Proof.VERIFIED),
        (("app.*",), "IndexError", Proof.PROVEN),
        (("requirements*.txt",), "ModuleNotFoundError: No module named 'newdep'", Proof.PROVEN),
    ],
)
def test_what_fails_for_lack_of_a_new_dependency_proves_nothing(depends, output, proof):
    kit = Kit(said("fail", finding(reproducer="t")), exits={"reproduce-head": result(output, 1), "reproduce-base": 0})
    (one,) = kit.judge(depends=depends).findings
    assert one.proof is proof
    assert ("misses on head what a sandbox made from the base lacks (app.py changed)" in one.note) == (
        proof is Proof.VERIFIED
    )
    told = "has the dependencies of the base, and app.py changed" in kit.task.variables["changed"]
    assert told == (depends == ("app.*",))


def test_reproducers_are_screened_and_few():
    prover = Prover(lambda *_: pytest.fail("was run"), FakeRecorder(), lambda script: "refused: " + script)
    assert "was not run: refused: rm" in prover("rm", "b", "h")
    exits = {"reproduce-head": 0}
    kit = Kit(said("fail", *[finding(reproducer="true") for _ in range(MOST + 1)]), exits=exits)
    notes = [one.note for one in kit.judge().findings]
    assert notes[-1] == f"its reproducer was not run: {MOST} are run for one review" and "passes" in notes[0]


def test_the_same_inputs_are_asked_once():
    kit = Kit(said("pass"), said("fail", finding()), said("pass"), Ended.LOOP)
    assert not kit.judge().remembered and kit.asked == 1
    again = kit.judge()
    assert again.remembered and again.verdict == "pass" and kit.asked == 1
    assert not kit.judge(fresh=True).remembered and kit.asked == 2
    assert kit.judge().verdict == "fail" and kit.asked == 2
    assert kit.judge(claims="It is fast.").verdict == "pass" and kit.asked == 3
    assert kit.judge(inputs={"version": "2"}).verdict == "inconclusive" and kit.asked == 4  # and is not remembered
    kit.answers = [said("pass")]
    assert kit.judge(inputs={"version": "2"}).verdict == "pass"
    judged = kit.recorder.of("review.judged")
    assert [one["remembered"] for one in judged].count(True) == 2


def test_the_story_is_told_apart_from_the_prompt_and_the_tree_says_nothing():
    kit = Kit(said("pass", blind="pass", told="pass"))
    report = kit.judge(claims="It is fast.")
    assert kit.trees == ["wordless"] and "It is fast." in kit.task.variables["story"]
    assert all("It is fast." not in text for name, text in kit.task.variables.items() if name != "story")
    assert (report.blind, report.told) == ("pass", "pass")


def test_a_later_round_raises_only_what_is_new():
    other = finding(quote="    b = 2", line=3, end_line=3, title="b is never used again")
    late = finding(quote="    return a", line=4, end_line=4, title="it returns the wrong one")
    kit = Kit(said("fail", finding()), said("fail", finding(), other, late))
    kit.judge(target="main")
    kit.head, kit.parents = "h2", {"h2": {"h1"}}
    kit.verdicts.rows = dict(kit.verdicts.rows)
    report = kit.judge(target="main", fresh=True)
    assert [one.disposition for one in report.findings] == [Disposition.KNOWN, Disposition.NEW, Disposition.KNOWN]
    assert [one.blocking for one in report.findings] == [True, True, False]
    assert "did not raise it" in report.findings[2].demoted


@pytest.mark.parametrize("change", [{"base": "older"}, {"unseen": ["app.py:1-4"]}], ids=["base", "unseen"])
def test_what_an_earlier_round_did_not_judge_blocks_in_a_later_one(change):
    """The base moved under it, so that other lines are the change's; or nobody had seen the lines."""
    late = finding(quote="    return a", line=4, end_line=4, title="it returns the wrong one")
    kit = Kit(said("fail", finding()), said("fail", late))
    kit.judge(target="main")
    kit.head, kit.parents = "h2", {"h2": {"h1"}}
    kit.verdicts.rows = {key: (target, row | change) for key, (target, row) in kit.verdicts.rows.items()}
    (one,) = kit.judge(target="main", fresh=True).findings
    assert one.blocking and one.disposition is Disposition.NEW


def test_what_is_unverified_passes_no_later_round():
    late = finding(quote="    return a", line=4, end_line=4, sound=False, doubt="event 9 is none")
    kit = Kit(said("pass"), said("fail", late))
    kit.judge(target="main")
    kit.head, kit.parents = "h2", {"h2": {"h1"}}
    assert kit.judge(target="main", fresh=True).verdict == "inconclusive"


def test_what_blocked_before_still_blocks_where_its_file_is_as_it_was():
    kit = Kit(said("fail", finding()), said("pass"), said("pass"))
    kit.judge(target="main")
    kit.head, kit.parents, kit.changed_since = "h2", {"h2": {"h1"}}, DIFF.replace(b"app.py", b"other.py")
    report = kit.judge(target="main", fresh=True)
    assert (report.verdict, report.findings[0].disposition) == ("fail", Disposition.KNOWN)
    kit.head, kit.parents = "h3", {}
    assert kit.judge(target="main", fresh=True).verdict == "pass"  # goes on from nothing that was judged


def test_a_proven_finding_stands_as_long_as_its_reproducer_fails():
    kit = Kit(said("fail", finding(reproducer="t")), said("pass"), exits={"reproduce-head": 1, "reproduce-base": 0})
    kit.judge(target="main")
    kit.head, kit.parents, kit.changed_since = "h2", {"h2": {"h1"}}, b""
    kit.answers.insert(0, said("pass"))
    kit.exits["reproduce-head"] = SandboxLost("gone")
    assert kit.judge(target="main", fresh=True).verdict == "fail"  # it was not seen to pass
    kit.head, kit.parents, kit.exits["reproduce-head"] = "h3", {"h3": {"h2", "h1"}}, 0
    assert kit.judge(target="main", fresh=True).verdict == "pass"


WAIVER = '[[waiver]]\nfingerprint = "{}"\nreason = "Known, ticket 7."\nexpires = {}\n'
DAY = 86_400_000


def test_a_waiver_of_the_base_waives_until_it_expires():
    kit = Kit(said("fail", finding()))
    mark = kit.judge().findings[0].fingerprint
    kit.files[("base", WAIVERS)] = WAIVER.format(mark, "1970-01-02").encode()
    report = kit.judge()
    assert (report.verdict, report.remembered) == ("pass", True)
    assert (report.findings[0].disposition, report.findings[0].waiver) == (Disposition.WAIVED, "Known, ticket 7.")
    kit.clock.now = 2 * DAY / 1000
    assert kit.judge().verdict == "fail"


def test_a_waiver_that_the_target_took_back_waives_nothing_where_the_change_left_it():
    kit = Kit(said("fail", finding()))
    mark = kit.judge().findings[0].fingerprint
    kit.files |= {("base", WAIVERS): WAIVER.format(mark, "1970-01-02").encode(), ("tip", WAIVERS): None}
    assert kit.judge(tip="tip").verdict == "fail"


@pytest.mark.parametrize(
    "text",
    [
        '[[waiver]]\nfingerprint = "a"\nexpires = 2030-01-01\n',
        '[[waiver]]\nfingerprint = "a"\nreason = "  "\nexpires = 2030-01-01\n',
        '[[waiver]]\nfingerprint = "a"\nreason = "r"\n',
        '[[waiver]]\nfingerprint = "a"\nreason = "r"\nexpires = "2030-01-01"\n',
        '[[waiver]]\nfingerprint = "a"\nreason = "r"\nexpires = 2030-01-01\nall = true\n',
        'all = true\n[[waiver]]\nfingerprint = "a"\nreason = "r"\nexpires = 2030-01-01\n',
        "waiver = 1\n",
        "all = true\n",
        "not toml",
        "\xff",
    ],
)
def test_a_waiver_without_reason_or_expiry_is_a_configuration_error(text):
    with pytest.raises(ConfigError, match=r"waivers\.toml"):
        waivers(text.encode("latin-1"), 0)


def test_a_fingerprint_outlives_moved_lines_and_white_space():
    one = fingerprint("a.py", "tests", "    a = x[0]", FILES["head"], 2)
    moved = b"import os\n\n" + FILES["head"].replace(b"a = x[0]", b"a =   x[0]")
    assert one == fingerprint("a.py", "tests", "    a =   x[0]", moved, 4)
    elsewhere = FILES["head"].replace(b"def run", b"def walk")
    others = [("b.py", "tests", FILES["head"]), ("a.py", "other", FILES["head"]), ("a.py", "tests", elsewhere)]
    assert one not in {fingerprint(path, kind, "    a = x[0]", data, 2) for path, kind, data in others}


def test_what_is_no_text_file_has_a_fingerprint():
    assert fingerprint("link", "security", "../x", b"", 1) != fingerprint("lib", "security", "../x", b"", 1)


def test_a_lone_cr_makes_no_row_of_another_kind():
    """A model is shown it as a line end: what follows is still part of an added line."""
    rows = b"@@ -1,1 +1,2 @@ def f():\r-gone\n x\r\n+# fine\r-evil()\r import os\r\n"
    (hunk,) = parse(b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n" + rows)
    seen = clean(hunk.text).split("\n")
    assert seen == ["@@ -1,1 +1,2 @@ def f(): -gone", " x", "+# fine", "+-evil()", "+ import os", ""]
    assert hunk.added == ("# fine\n-evil()\n import os",)


def test_a_report_survives_being_stored():
    report = Kit(said("fail", finding(), unseen=["x"], claims=[])).judge()
    assert ReviewReport.from_json(report.as_json()) == report


def test_a_large_change_is_listed_whole_and_no_file_crowds_out_another():
    one = b"diff --git a/%b b/%b\n--- a/%b\n+++ b/%b\n"
    hunk = b"@@ -%d,0 +%d,1 @@\n+" + b"x" * 900 + b"\n"
    big = b"".join(hunk % (n * 9, n * 9 + 1) for n in range(100))
    diff = b"".join(one % ((name,) * 4) + text for name, text in ((b"a", big), (b"b", hunk % (1, 2)), (b"c", big)))
    hunks = parse(diff)
    chosen = choose(hunks, 20_000)
    assert len(hunks) == 201 and sum(len(part) for part in told(hunks, chosen)) <= 20_000
    per_file = [sum(hunks[n].path == name for n in chosen) for name in "abc"]
    assert per_file[1] == 1 and min(per_file[0], per_file[2]) >= 9
    listed = manifest(hunks, (), chosen)
    assert listed.count("NOT SHOWN") == 201 - len(chosen) and all(hunk.lines in listed for hunk in hunks)
    assert choose(hunks, 10**6) == frozenset(range(201))
    spared = frozenset(n for n, hunk in enumerate(hunks) if hunk.path == "a")
    assert not choose(hunks, 10**6, spared) & spared
    assert manifest(hunks, (), frozenset(), spared).count("need not be read") == 100


def test_what_the_base_lets_go_unread_is_named_and_no_longer_waited_for():
    kit = Kit(said("pass"))
    report = kit.judge(unread=("*.py",))
    assert (report.verdict, report.unread) == ("pass", tuple(hunk.name for hunk in parse(DIFF)))
    assert kit.task.facts["shown"] == frozenset(range(report.hunks))
    assert "need not be read" in kit.task.variables["changed"]
    assert "+    a = x[0]" not in kit.task.variables["diff"]


def test_findings_stand_when_the_run_ends_before_the_story_is_judged():
    kit = Kit((Ended.MALFORMED, said("fail", finding())))
    report = kit.judge()
    assert (report.verdict, report.exit, report.blind, report.told) == ("fail", 1, "fail", "")
    assert "malformed" in report.unheard and len(report.findings) == 1
    kit.answers = [said("fail", finding())]
    assert not kit.judge().remembered  # it was not remembered as if it were whole


@pytest.mark.parametrize(("ended", "code"), [(Ended.MALFORMED, 3), (Ended.LIMIT_STEPS, 6), (Ended.CREDENTIALS, 4)])
def test_a_first_pass_is_no_pass_when_the_story_was_not_judged(ended, code):
    noted = finding(severity="P3", wanted=False)
    report = Kit((ended, said("pass", noted))).judge()
    assert (report.verdict, report.exit, len(report.findings)) == ("inconclusive", code, 1)
    assert ended in report.reason


def test_a_review_that_was_stopped_says_nothing():
    report = Kit((Ended.CANCELLED, said("fail", finding()))).judge()
    assert (report.verdict, report.exit, report.findings) == ("inconclusive", 130, ())
