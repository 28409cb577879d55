"""Counting tests from what runners print and report."""

import tracemalloc

import pytest

from agent_harness.gates.counting import Counts, from_junit, from_output

PYTEST = """\
....F.s                                                                  [100%]
=========================== short test summary info ============================
FAILED tests/test_a.py::test_b[1-x y] - assert 1 == 2
ERROR tests/test_c.py::test_d
============== 1 failed, 5 passed, 1 skipped, 1 error in 0.12s ===============
"""
UNITTEST = """\
FAIL: test_sum (tests.test_a.Sums.test_sum)
----------------------------------------------------------------------
Ran 7 tests in 0.003s

FAILED (failures=1, errors=1, skipped=2, expected failures=1)
"""
GO = "--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n    --- SKIP: TestC/x (0.00s)\nFAIL\n"
CARGO = "test a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured\n"
JEST = "Tests:       1 failed, 2 skipped, 5 passed, 8 total\n"
TAP = "TAP version 13\n1..3\nok 1 - adds\nnot ok 2 - subtracts\nok 3 - divides # SKIP no zero\n"
PLAIN = "units: 4 passed, 1 failed, 2 skipped\n"


@pytest.mark.parametrize(
    ("text", "passed", "failed", "errors", "skipped"),
    [
        (PYTEST, 5, 1, 1, 1),
        ("3 passed in 65.02s (0:01:05)\n", 3, 0, 0, 0),
        ("1 passed, 2 deselected, 1 warning in 0.01s\n", 1, 0, 0, 0),
        ("2 passed in 0.1s\n1 failed in 0.2s\n", 2, 1, 0, 0),
        ("2 passed, 3 subtests passed in 0.1s\n", 2, 0, 0, 0),
        ("\x1b[32m2 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m\n", 2, 0, 0, 0),
        (UNITTEST, 2, 1, 1, 3),
        ("Ran 1 test in 0.000s\n\nOK\n", 1, 0, 0, 0),
        (GO, 1, 1, 0, 1),
        (CARGO, 3, 1, 0, 2),
        (JEST, 5, 1, 0, 2),
        (TAP, 1, 1, 0, 1),
        (PLAIN, 4, 1, 0, 2),
        ("no tests ran in 0.01s\n", 0, 0, 0, 0),
        ("Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", 0, 0, 0, 0),
    ],
)
def test_summaries(text, passed, failed, errors, skipped):
    counts = from_output(text.encode())
    assert counts is not None
    assert (counts.passed, counts.failed, counts.errors, counts.skipped) == (passed, failed, errors, skipped)


def test_names_of_failing_tests():
    assert from_output(PYTEST.encode()).failing == {"tests/test_a.py::test_b[1-x y]", "tests/test_c.py::test_d"}
    assert from_output(GO.encode()).failing == {"TestB"}


@pytest.mark.parametrize(
    "text", ["", "all good\n", "passed everything in no time", "OK\n", "12 files checked in 0.3s\n"]
)
def test_other_output_counts_nothing(text):
    assert from_output(text.encode()) is None


def test_report():
    report = b"""<?xml version="1.0"?><testsuites><testsuite>
      <testcase classname="a" name="ok"/><testcase classname="a" name="bad"><failure>x</failure></testcase>
      <testcase classname="a" name="torn"><error/></testcase><testcase classname="a" name="off"><skipped/></testcase>
      </testsuite></testsuites>"""
    counts = from_junit(report)
    assert (counts.passed, counts.failed, counts.errors, counts.skipped) == (1, 1, 1, 1)
    assert counts.failing == {"a::bad", "a::torn"}
    assert counts.names == {"a::ok", "a::bad", "a::torn", "a::off"}


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"<x",
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        b"<!-- x -->" * 200 + b"<!DOCTYPE a><a/>",
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'.encode("utf-16"),
        b"<a>\xff</a>",
        b"<a>" * 60 + b"</a>" * 60,
        b'<a><testcase name="x"/>',
    ],
)
def test_reports_that_are_none(report):
    assert from_junit(report) is None


def test_a_hostile_report_takes_no_more_memory_than_its_text():
    report = b"<r>" + b"<a/>" * 100_000 + b"</r>"
    tracemalloc.start()
    assert from_junit(report) == Counts(names=frozenset())
    assert tracemalloc.get_traced_memory()[1] < 4 * len(report)
    tracemalloc.stop()


def test_sums():
    total = from_output((UNITTEST + "\n" + UNITTEST.replace("test_sum", "test_other")).encode())
    assert total == Counts(4, 2, 2, 6, frozenset(f"{n} (tests.test_a.Sums.{n})" for n in ("test_sum", "test_other")))
    assert (total.collected, total.ran, total.names) == (14, 6, None)
