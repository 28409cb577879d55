"""The history's rules, the loop guard, tool arguments and definitions."""

import json
import time

import pytest

from agent_harness.errors import UsageError
from agent_harness.types import Message, ToolCall
from agent_harness_roles.history import HistoryCheck
from agent_harness_roles.loopguard import STOP, LoopGuard
from agent_harness_roles.runner import Runner
from agent_harness_roles.tools import Toolbox, kept
from fakes.roles import IMPLEMENTER, PlainLoop

RUNNER = Runner(PlainLoop())
BOX = Toolbox(RUNNER.role("implementer"))


def asks(*ids):
    return Message("assistant", "", tuple(ToolCall(i, "bash", "{}") for i in ids))


def tool(id):
    return Message("tool", "x", (), id)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([asks("a", "b"), tool("a")], "no result: b"),
        ([asks("a", "b"), tool("b"), tool("a")], "not next"),
        ([tool("a")], "not next"),
        ([asks("a"), Message("user", "x"), tool("a")], "before the results"),
        ([asks("a"), tool("a"), asks("a"), tool("a")], "twice"),
        ([asks("a", "a"), tool("a"), tool("a")], "twice"),
        ([Message("user", "a\0b")], "control characters"),
        ([Message("user", "\udcff")], "surrogates"),
    ],
)
def test_a_history_that_would_poison_later_calls_is_found(history, words):
    with pytest.raises(ValueError, match=words):
        HistoryCheck().check(history)


def test_a_history_only_grows():
    check, history = HistoryCheck(), [Message("user", "a")]
    check.check(history)
    check.check([*history, asks("a"), tool("a")])
    with pytest.raises(ValueError, match="rewritten"):
        check.check([Message("user", "b")])


def test_a_long_observation_is_compared_at_once():
    began = time.monotonic()
    LoopGuard().saw(["ls"], ["1" * 300_000])
    assert time.monotonic() - began < 2


def test_the_same_turn_is_counted_in_a_row():
    guard = LoopGuard()
    assert [guard.saw(["ls"], ["a"]) for _ in range(STOP)] == [1, 2, 3, 4, 5, 6]
    assert guard.saw(["ls"], ["b"]) == 1


def test_a_circle_of_two_is_found_but_work_between_tests_is_none():
    guard = LoopGuard()
    counts = [guard.saw([f"cmd {n % 2}"], ["same"]) for n in range(2 * STOP)]
    assert counts[-1] == STOP
    guard = LoopGuard()
    assert max(guard.saw([f"sed {n}" if n % 2 else "pytest"], ["same"]) for n in range(40)) < 3


def test_durations_hide_no_loop_and_waiting_is_none():
    guard = LoopGuard()
    assert max(guard.saw(["pytest"], [f"1 failed in 0.{n}s"]) for n in range(STOP)) == STOP
    guard = LoopGuard()
    assert max(guard.saw(["sleep 5; tail log"], [f"up {n} s"]) for n in range(STOP)) == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bash", "{", "not valid JSON"),
        ("bash", "[1]", "must be a JSON object"),
        ("bash", "[" * 100_000, "not valid JSON"),
        ("bash", "{}", "'command' is a required property"),
        ("bash", '{"command": ""}', "command"),
        ("bash", '{"command": "ls", "cwd": "/"}', "cwd"),
        ("bash", '{"command": "a\\u0000b"}', "NUL"),
        ("bash", '{"command": "a", "timeout_s": NaN}', "not a number"),
        ("bash", '{"command": "a", "timeout_s": 1e999}', "not a number"),
        ("submit", f'{{"outcome": {"[" * 51}{"]" * 51}}}', "nested too deeply"),
        ("edit", '{"path": "a"}', "either"),
        ("edit", '{"path": "a", "edits": [], "content": ""}', "either"),
        ("edit", '{"path": "a", "edits": [{"old": "", "new": "x"}]}', "edits.0.old"),
        ("submit", '{"outcome": "done", "summary": "test"}', "too short"),
        ("python", "{}", "no tool 'python'; the tools are: bash, edit, submit"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(name, text, words):
    value, problem = BOX.parse(name, text)
    assert value is None and words in problem and len(problem) < 1200


def test_arguments_kept_in_the_history_can_always_be_read():
    good = '{"command":  "ls"}'
    assert kept(good, json.loads(good)) == good
    for text in (
        "{",
        '{"a": NaN}',
        "null",
        "\0",
        '{"a": "\\ud800"}',
        '{"a": "x\ny"}',
        "[" * 100_000,
        "",
        '{"command": "a\x01", "timeout_s": 1e999}',
    ):
        value, _ = BOX.parse("bash", text)
        again = json.loads(kept(text, value))
        assert isinstance(again, dict)
        json.dumps(again, ensure_ascii=False, allow_nan=False).encode()


def test_raw_newlines_in_json_are_taken():
    value, problem = BOX.parse("bash", '{"command": "a\nb"}')
    assert value == {"command": "a\nb"} and not problem


def test_variables_are_never_read_as_a_template():
    definition = RUNNER._definition("implementer")
    evil = "${title} $brief $$ {{ 7*7 }} {% raw %}"
    _, task = definition.opening(definition.role, {**IMPLEMENTER, "brief": evil, "feedback": evil})
    assert task.count(evil) == 2
    _, without = definition.opening(definition.role, {**IMPLEMENTER, "feedback": " "})
    assert "previous attempt" in task and "previous attempt" not in without


@pytest.mark.parametrize("change", [{"title": None}, {"feedbak": "x"}])
def test_variables_must_fit_the_prompts(change):
    definition = RUNNER._definition("implementer")
    variables = {k: v for k, v in {**IMPLEMENTER, **change}.items() if v is not None}
    with pytest.raises(UsageError, match="title" if "title" in change else "feedbak"):
        definition.opening(definition.role, variables)


def test_an_unknown_role_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'reviewer'"):
        RUNNER.role("reviwer")


def test_a_new_role_is_a_folder(tmp_path):
    folder = tmp_path / "surveyor"
    folder.mkdir()
    (folder / "role.toml").write_text(
        'mode = "ro"\ntools = ["bash", "edit", "submit"]\ncommand_timeout_s = 10\n'
        "[limits]\nsteps = 1\ntokens = 1\nusd = 0.000000001\nseconds = 1\n"
    )
    with pytest.raises(UsageError, match=r"system\.md"):
        Runner(PlainLoop(), tmp_path).role("surveyor")
    for name, text in (
        ("system.md", "s"),
        ("task.md", "t"),
        ("schema.json", "{}"),
        ("validator.py", "validate = dict"),
    ):
        (folder / name).write_text(text)
    with pytest.raises(UsageError, match="only in mode rw"):
        Runner(PlainLoop(), tmp_path).role("surveyor")
    (folder / "role.toml").write_text((folder / "role.toml").read_text().replace('"edit", ', ""))
    role = Runner(PlainLoop(), tmp_path).role("surveyor")
    assert role.limits.nanousd == 1 and set(role.prompt_digests) >= {"system.md", "role.toml", "validator.py"}
