"""Reports of checks compared: what counts as a pass, and what as weakening."""

import contextlib
import dataclasses

import pytest

from agent_harness.gates import Case
from agent_harness.gates.checks import CheckReport, Checks, ChecksGate, compare, unrunnable
from agent_harness.gates.counting import Counts
from agent_harness.types import (
    Allowance,
    Candidate,
    Change,
    Check,
    CheckKind,
    CommandEnd,
    CommandResult,
    Event,
    GateOutcome,
    Item,
    ItemState,
)
from fakes.recorder import FakeRecorder
from fakes.sandbox import FakeSandbox, result

ITEM = Item("i", "t", "b", ItemState.CLAIMED, None, None, (), 0, None, None, (), (), 1, 0, 0, 0, "", "", 0, 0)
CHECK = Check("pytest -q")


def report(counts=None, *, passed=True, broken="", exit_code=0, check=CHECK):
    return CheckReport(check, passed, broken, exit_code, CommandEnd.EXITED, counts, "output", 0.1)


def names(*all_of, failing=(), skipping=()):
    good = len(all_of) - len(failing) - len(skipping)
    return Counts(good, len(failing), 0, len(skipping), frozenset(failing), frozenset(skipping), frozenset(all_of))


def test_a_repair_passes():
    old = report(names("a", "b", failing=["b"]), passed=False, exit_code=1)
    assert compare(old, report(names("a", "b")), ()) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (report(names("a")), report(names("a", failing=["a"]), passed=False, exit_code=1), "newly failing: a"),
        (
            report(names("a", failing=["a"]), passed=False),
            report(names("a", failing=["a"]), passed=False, exit_code=1),
            "still failing: a",
        ),
        (report(names("a", "b")), report(names("a")), "collects 1 tests, 2 on the base: b"),
        (report(names("a", "b")), report(names("a", "c")), "no longer collects b"),
        (report(names("a", "b")), report(names("a", "b", skipping=["b"])), "skips 1 tests, 0 on the base: b"),
        (report(names("a")), report(broken="it collected no tests", passed=False), "cannot run on the candidate"),
        (report(Counts(3)), report(Counts(2)), "collects 2 tests, 3 on the base"),
    ],
)
def test_what_speaks_against(old, new, words):
    assert words in " ".join(compare(old, new, ()))


@pytest.mark.parametrize(("depends", "told"), [(("require*.txt",), True), (("go.mod",), False), ((), False)])
def test_where_dependencies_move_a_failure_says_what_the_sandbox_is_made_from(tmp_path, depends, told):
    @contextlib.contextmanager
    def opened(commit, purpose):
        out, code = ("1 passed in 0.1s", 0) if commit == "base" else ("ModuleNotFoundError\n1 failed in 0.1s", 1)
        yield FakeSandbox(tmp_path, act=lambda command: result(out, code) if "pytest" in command.script else result())

    change = Change(b"requirements.txt", "M", "100644", "100644", 1, binary=False)
    gate = ChecksGate(Checks(opened, str), (CHECK,), FakeRecorder(), depends)
    judged = gate.judge(Case(ITEM, "base", Candidate("base", "tree", "head", (change,))))
    word = "the sandbox is made from the base, and requirements.txt changed"
    assert judged.outcome is GateOutcome.FAIL and (word in judged.reasons[-1]) == told


def test_no_worse_holds_the_number_too_where_not_every_failure_is_named():
    lint = dataclasses.replace(CHECK, no_worse=True)
    old = report(Counts(2, 1, 0, 0, frozenset({"a"})), passed=False, exit_code=1, check=lint)
    assert compare(old, old, ()) == []
    more = report(Counts(1, 2, 0, 0, frozenset({"a"})), passed=False, exit_code=1, check=lint)
    assert "2 fail, 1 on the base; still failing: a" in compare(old, more, ())[0]


def test_a_forged_summary_has_no_report_beside_it():
    proven = dataclasses.replace(names("a", "b"), proven=True)
    assert "do not agree" in compare(report(proven), report(Counts(2)), ())[0]
    assert "do not agree" in compare(report(proven), report(names("a", "b")), ())[0]
    assert compare(report(proven), report(proven), ()) == []
    assert compare(report(names("a", "b")), report(Counts(2)), ()) == []
    assert compare(report(proven), report(Counts(2)), (Allowance.FEWER_TESTS,)) == []


def test_reasons_are_of_a_readable_length():
    flood = CheckReport(
        CHECK, False, "", 1, CommandEnd.EXITED, names("n" * 9999, failing=["n" * 9999]), "x" * 9999, 0.1
    )
    assert len(compare(report(names("a")), flood, ())[0]) < 1000


def test_allowances():
    assert compare(report(names("a", "b")), report(names("a")), (Allowance.FEWER_TESTS,)) == []
    assert compare(report(names("a")), report(names("a", skipping=["a"])), (Allowance.NEW_SKIPS,)) == []


def test_no_worse_accepts_old_failures_only():
    check = Check("pytest", no_worse=True)
    old = report(names("a", "b", failing=["b"]), passed=False, exit_code=1, check=check)
    same = report(names("a", "b", failing=["b"]), passed=False, exit_code=1, check=check)
    worse = report(names("a", "b", failing=["a"]), passed=False, exit_code=1, check=check)
    assert compare(old, same, ()) == []
    assert "newly failing: a" in compare(old, worse, ())[0]


def test_unrunnable_names_the_check():
    assert "cannot run on the base: gone" in unrunnable([report(broken="gone")], ITEM)[0]


def test_without_a_check_nothing_is_judged_whatever_is_allowed():
    assert unrunnable([report()], ITEM) == []
    assert "names a check" in unrunnable([], dataclasses.replace(ITEM, allow=(Allowance.NEW_CHECKS,)))[0]


class OneSandbox:
    """Answers each script from a table; everything else fails."""

    def __init__(self, results):
        self.results, self.seen = results, []

    def execute(self, command):
        self.seen.append(command)
        code, out = self.results.get(command.script, (1, b""))
        end = CommandEnd.TIMEOUT if code == "timeout" else CommandEnd.EXITED
        return CommandResult(end, 0 if code == "timeout" else code, out, b"", len(out), 0.5)


class Kept:
    def __init__(self):
        self.events = []

    def event(self, kind, data, bodies=None):
        self.events.append((kind, data, bodies))
        return Event(len(self.events), 0, kind, "", "", data, "")


@pytest.mark.parametrize(
    ("code", "out", "broken"),
    [
        (0, b"3 passed in 0.1s\n", ""),
        (1, b"1 failed, 2 passed in 0.1s\n", ""),
        (0, b"fine\n", "no test summary"),
        (127, b"bash: pytest: command not found\n", "missing in the sandbox image"),
        (5, b"no tests ran in 0.01s\n", "collected no tests"),
        (2, b"1 error in 0.01s\n", "error(s) while collecting"),
        (0, b"2 skipped in 0.01s\n", "skipped"),
        ("timeout", b"", "did not end within"),
    ],
)
def test_one_check(code, out, broken):
    recorder = Kept()
    checks = Checks(lambda commit, purpose: contextlib.nullcontext(OneSandbox({"pytest -q": (code, out)})), lambda t: t)
    (told,) = checks.on_base("c", [CHECK], recorder)
    assert broken in told.broken if broken else told.broken == ""
    assert told.passed is (code == 0 and not broken)
    assert [kind for kind, _, _ in recorder.events] == ["command.started", "command.ended"]


def test_a_command_is_judged_by_its_exit_code():
    lint = Check("ruff check", kind=CheckKind.COMMAND)
    checks = Checks(lambda commit, purpose: contextlib.nullcontext(OneSandbox({"ruff check": (0, b"ok")})), lambda t: t)
    assert checks.on("c", [lint], Kept(), "x")[0].passed


def test_base_reports_are_remembered():
    made = []

    def open_tree(commit, purpose):
        made.append(commit)
        return contextlib.nullcontext(OneSandbox({"pytest -q": (0, b"1 passed in 0.1s\n")}))

    checks = Checks(open_tree, lambda text: text)
    checks.on_base("c", [CHECK], Kept())
    checks.on_base("c", [CHECK], Kept())
    assert made == ["c"]


JUNIT = b'<t><testcase classname="a" name="x"/><testcase classname="a" name="y"/></t>'


@pytest.mark.parametrize(
    ("printed", "written", "collected", "proven"),
    [
        (b"2 passed in 0.1s", JUNIT, 2, True),
        (b"3 passed in 0.1s", JUNIT, 3, False),
        (b"", JUNIT, 2, False),
        (b"2 passed in 0.1s", b"", 2, False),
    ],
)
def test_report_and_summary_prove_each_other(printed, written, collected, proven):
    class Box(OneSandbox):
        def execute(self, command):
            return super().execute(command) if command.script == "pytest -q" else result(written)

    def result(out):
        return CommandResult(CommandEnd.EXITED, 0, out, b"", len(out), 0.1)

    checks = Checks(lambda commit, purpose: contextlib.nullcontext(Box({"pytest -q": (0, printed)})), lambda t: t)
    (told,) = checks.on_base("c", [CHECK], Kept())
    assert (told.counts.collected, told.counts.proven) == (collected, proven)
