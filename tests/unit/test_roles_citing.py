"""What a read-only role cites is followed by code, or goes back."""

import pytest

from agent_harness_roles.answerer.validator import validate as answered
from agent_harness_roles.citing import followed
from agent_harness_roles.evidence import Evidence, Shown

FILES = {"a.py": b"x = 1\r\n\x1b[31mx = 2\r\ny = 1\n", "t.py": b"class TestA:\n    def test_b(self): ...\n# test_c\n"}
FILES["t.js"] = b"test('test_c', () => {})\n"
FACTS = {
    "read": FILES.get,
    "absent": lambda text: text not in "x y TestA test_b",
    "commit": lambda name: f"{name} A subject" if name == "abcdef1" else "",
}
SEEN = Evidence(
    Shown(3, "", "the question itself", ok=True),
    [
        Shown(5, "cat a.py; echo done", "x = 1\nx = 2\ndone", ok=True),
        Shown(7, "rg -n zebra .", "", ok=False),
        Shown(9, "cd docs && grep -rn x .", "", ok=False),
        Shown(11, "rg zebra x.py", "rg: x.py: No such file", ok=False),
        Shown(13, "rg 'test_b' nowhere", "rg: nowhere: No such file", ok=False),
        Shown(15, "echo zebra", "nothing", ok=True),
    ],
)


@pytest.mark.parametrize(
    ("cite", "shown"),
    [
        ({"path": "a.py", "quote": "x = 1\nx = 2"}, "a.py:1 'x = 1 x = 2'"),
        ({"path": "t.py", "test": "TestA::test_b[1-2]"}, "t.py: TestA::test_b[1-2]"),
        ({"path": "t.js", "test": "test_c"}, "t.js: test_c"),
        ({"commit": "abcdef1"}, "commit abcdef1 A subject"),
        ({"event": 1, "text": "x = 2"}, "event 5, `cat a.py; echo done`: 'x = 2'"),
        ({"event": 2, "searched": "zebra"}, "event 7, `rg -n zebra .`: 'zebra' stands nowhere"),
        ({"event": 3, "searched": "x"}, "event 9, `cd docs && grep -rn x .`: 'x' was not found there"),
        ({"event": 4, "searched": "zebra"}, "event 11, `rg zebra x.py`: 'zebra' stands nowhere"),
    ],
)
def test_what_is_there_is_shown(cite, shown):
    assert followed("it", [{"says": "So it is.", **cite}], FACTS, SEEN) == ([], [{"says": "So it is.", **cite, "shown": shown}])  # fmt: skip


@pytest.mark.parametrize(
    ("cite", "words"),
    [
        ({}, "cite exactly one of"),
        ({"path": "a.py"}, "cite exactly one of"),
        ({"quote": "x"}, "cite exactly one of"),
        ({"path": "a.py", "quote": "y = 1", "commit": "abcdef1"}, "cite exactly one of"),
        ({"path": "a.py", "event": 1, "text": "x = 1"}, "cite exactly one of"),
        ({"path": "b.py", "quote": "y = 1"}, "there is no file b.py"),
        ({"path": "/workspace/a.py", "quote": "y = 1"}, "paths are relative"),
        ({"path": "a.py", "quote": "x ="}, "more than once"),
        ({"path": "a.py", "quote": "z = 1"}, "does not stand in it"),
        ({"path": "t.py", "test": "test_"}, "there is no test 'test_'"),
        ({"path": "t.py", "test": "[all of it is tested]"}, "there is no test ''"),
        ({"path": "t.py", "test": "TestB::test_b"}, "there is no test 'TestB'"),
        ({"path": "t.py", "test": "test_c"}, "there is no test 'test_c'"),
        ({"commit": "1234567"}, "no commit in the history"),
        ({"event": 0, "text": "the question itself"}, "there is no event 0"),
        ({"event": 7, "text": "x = 1"}, "there is no event 7"),
        ({"text": "x = 1"}, "there is no event None"),
        ({"event": 1, "text": "x = 3"}, "does not show"),
        ({"event": 1, "text": "done"}, "by a command of yours"),
        ({"event": 1, "searched": "zebra"}, "searched for"),
        ({"event": 6, "searched": "zebra"}, "searched for"),
        ({"event": 5, "searched": "test_b"}, "stands elsewhere"),
        ({"searched": "zebra"}, "searched for"),
    ],
)
def test_what_is_made_up_goes_back(cite, words):
    problems, found = followed("it", [{"says": "So it is.", **cite}], FACTS, SEEN)
    assert found == [] and len(problems) == 1 and words in problems[0] and "it, citation 1 (So it is.)" in problems[0]


def test_an_answer_rests_on_something():
    empty = {"outcome": "answered", "answer": "It is so, believe me.", "evidence": []}
    assert answered({**empty, "outcome": "impossible"}, FACTS, SEEN)[0] == []
    assert "cite what it rests on" in answered(empty, FACTS, SEEN)[0][0]
    assert "look at the repository" in answered({**empty, "outcome": "impossible"}, FACTS, Evidence())[0][0]
