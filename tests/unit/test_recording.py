"""Recordings: replayed exactly, and stopped where the run is another one."""

import json
import subprocess
import sys
import threading

import pytest

from agent_harness.errors import ConfigError, CredentialError, ModelFault, ModelFaultKind, ReplayDrift
from agent_harness.models.drift import first_difference, steady
from agent_harness.models.recording import RecordingTransport, ReplayTransport
from agent_harness.redact import Redactor
from agent_harness.types import Message, ModelRequest, ToolCall, ToolSpec, Usage
from fakes.model_parts import ScriptedTransport, reply

BASH = ToolSpec("bash", "Run it.", {"type": "object"})
USER = Message("user", "fix it")
plain = str


def ask(*messages: Message, role: str = "implementer", tools=(BASH,)) -> ModelRequest:
    return ModelRequest(role, messages, tools, 100)


def conversation(observation: str = "1 passed in 0.12s"):
    """Two calls of the implementer and one of the reviewer, with their answers."""
    first = reply("look", calls=[ToolCall("c1", "bash", '{"command": "ls"}')], usage=Usage(10, 5, cache_read=4))
    second = reply("done", nanousd=1234, model="m-2")
    third = reply("fine", usage=Usage(7, 1, reasoning=1, counted=True))
    return [
        (ask(USER), first),
        (ask(USER, first.message, Message("tool", observation, tool_call_id="c1")), second),
        (ask(Message("user", "judge"), role="reviewer"), third),
    ]


def record(path, calls=None, redact=plain):
    calls = calls or conversation()
    transport = RecordingTransport(ScriptedTransport([answer for _, answer in calls]), path, redact)
    for request, _ in calls:
        transport.send(request, 30)
    return path


def test_a_replay_gives_every_answer_exactly_with_usage_and_cost(tmp_path):
    replay = ReplayTransport(record(tmp_path / "r.jsonl"))
    for request, answer in conversation():
        assert replay.send(request, 1) == answer


def test_roles_may_come_in_another_order_than_they_were_recorded(tmp_path):
    replay = ReplayTransport(record(tmp_path / "r.jsonl"))
    one, two, three = conversation()
    for request, answer in (three, one, two):
        assert replay.send(request, 1) == answer


def test_only_what_is_new_is_written(tmp_path):
    lines = [json.loads(line) for line in record(tmp_path / "r.jsonl").read_text().splitlines()]
    assert lines[0] == {"format": "agent-harness recording", "version": 1}
    assert [(line["role"], line["call"], line["start"], len(line["messages"])) for line in lines[1:]] == [
        ("implementer", 1, 0, 1),
        ("implementer", 2, 1, 2),
        ("reviewer", 1, 0, 1),
    ]


def test_what_differs_between_any_two_runs_is_no_difference(tmp_path):
    replay = ReplayTransport(record(tmp_path / "r.jsonl"))
    for request, answer in conversation("1 passed in 3.98s"):
        assert replay.send(request, 1) == answer


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("5 passed in 0.12s", "5 passed in 12.5 seconds"),
        ("real\t0m0.012s", "real\t1m7.400s"),
        ("at 2026-11-30T12:00:00Z", "at 2025-01-02T03:04:05.678Z"),
        ("2026-11-30 12:00:00,123 INFO", "2026-12-01 07:00:59,001 INFO"),
        ("-rw-r--r-- 1 a a 5 Nov 30 12:54 x", "-rw-r--r-- 1 a a 5 Dec  1 07:01 x"),
        ("Date:   Mon Nov 30 12:54:01 2026 +0000", "Date:   Tue Dec 1 02:04:01 2026 +0100"),
        ("<A object at 0x7f3a9c1e55d0>", "<A object at 0x7f0000000010>"),
        ("rootdir: /tmp/pytest-of-me/pytest-1/x", "rootdir: /tmp/pytest-of-you/pytest-22/x"),
        ("/tmp/tmpab12cd34/x.py", "/tmp/tmpzz99_x1y/x.py"),
        ("[main 1a2b3c4] fix", "[main 9f8e7d6] fix"),
        ("container 0123456789ab", "container ab0123456789"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-426614174000"),
        ("worker pid 123", "worker pid 4567"),
    ],
)
def test_volatile_text(one, two):
    assert steady(one) == steady(two)
    assert first_difference(one, two) is None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("5 passed in 0.12s", "4 passed in 0.12s"),
        ("exit code 1", "exit code 2"),
        ("/workspace/src/a.py", "/workspace/src/b.py"),
        ("version 1.2.3", "version 1.2.4"),
        ("deadbeef", "deadbeee"),  # a word of hex letters alone is no id
        ("1234567", "1234568"),
        ("task-abc", "task-abd"),
        ("a\n", "a\n\n"),
        ("a\nb", "a\r\nb\n"),
    ],
)
def test_all_else_is_a_difference(one, two):
    assert first_difference(one, two) is not None


def drift(path, calls) -> ReplayDrift:
    replay = ReplayTransport(path)
    with pytest.raises(ReplayDrift) as caught:
        for request, _ in calls:
            replay.send(request, 1)
    return caught.value


def test_a_drift_names_role_call_message_line_and_both_texts(tmp_path):
    path = record(tmp_path / "r.jsonl", conversation("collected 5\n5 passed in 1s"))
    line = drift(path, conversation("collected 5\n4 passed, 1 failed in 1s")).line
    for part in (
        "call 2 of the implementer",
        "message 2",
        "line 3",
        "recorded '5 passed in 1s'",
        "now '4 passed, 1 failed in 1s'",
    ):
        assert part in line


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (ask(USER, tools=()), "the tools differ"),
        (ask(USER, Message("user", "more")), "message 1"),
        (ask(), "message 0"),
        (ask(Message("system", "fix it")), "message 0"),
    ],
)
def test_a_changed_request_stops(tmp_path, changed, part):
    path = record(tmp_path / "r.jsonl")
    assert part in drift(path, [(changed, None)]).line


def test_a_history_that_was_rewritten_stops(tmp_path):
    path = record(tmp_path / "r.jsonl")
    (first, _), (second, _), _ = conversation()
    rewritten = ask(Message("user", "fix that"), *second.messages[1:])
    assert "message 0" in drift(path, [(first, None), (rewritten, None)]).line


def test_more_calls_than_were_recorded_stop(tmp_path):
    path = record(tmp_path / "r.jsonl")
    calls = conversation()
    assert "no call 2 of the reviewer" in drift(path, [calls[2], calls[2]]).line
    assert "no call 1 of the surveyor" in drift(path, [(ask(USER, role="surveyor"), None)]).line


def test_faults_are_replayed_too(tmp_path):
    path = tmp_path / "r.jsonl"
    cap = ModelFault(ModelFaultKind.CAP, "spent", why="all", next="pay", retry_after_s=9, usage=Usage(3, 1))
    inner = ScriptedTransport([cap, reply("ok"), CredentialError("no key")])
    transport = RecordingTransport(inner, path, plain)
    with pytest.raises(ModelFault):
        transport.send(ask(USER), 9)
    transport.send(ask(USER), 9)
    with pytest.raises(CredentialError):
        transport.send(ask(USER), 9)
    replay = ReplayTransport(path)
    with pytest.raises(ModelFault) as caught:
        replay.send(ask(USER), 9)
    assert (caught.value.kind, caught.value.line, caught.value.usage) == (cap.kind, cap.line, cap.usage)
    assert replay.send(ask(USER), 9) == reply("ok")
    with pytest.raises(ReplayDrift):
        replay.send(ask(USER), 9)


def test_secrets_are_taken_out_before_the_write(tmp_path):
    redact = Redactor({"KEY": "sk-very-secret-1"})
    calls = [(ask(Message("user", "key is sk-very-secret-1")), reply("I saw sk-very-secret-1 there"))]
    path = record(tmp_path / "r.jsonl", calls, redact)
    assert "very-secret" not in path.read_text()
    assert "redacted" in ReplayTransport(path, redact).send(calls[0][0], 1).message.content


def test_an_answer_after_the_deadline_is_not_kept(tmp_path):
    transport = RecordingTransport(ScriptedTransport([reply(usage=Usage(5, 5)), reply("two")]), tmp_path / "r", plain)
    with pytest.raises(ModelFault, match="after the deadline") as caught:
        transport.send(ask(USER), -1)
    assert caught.value.usage == Usage(5, 5)  # paid all the same
    transport.send(ask(USER), 9)
    assert ReplayTransport(tmp_path / "r").send(ask(USER), 1).message.content == "two"


def test_many_threads_write_whole_lines_in_an_order_that_can_be_read(tmp_path):
    path = tmp_path / "r.jsonl"

    def work(role: str) -> None:
        transport = RecordingTransport(ScriptedTransport([reply("x" * 5000) for _ in range(10)]), path, plain)
        for _ in range(10):
            transport.send(ask(USER, role=role), 30)

    threads = [threading.Thread(target=work, args=(role,)) for role in ("a", "b", "a", "c")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    replay = ReplayTransport(path)
    for role, calls in (("a", 20), ("b", 10), ("c", 10)):
        answers = [replay.send(ask(USER, role=role), 1).message.content for _ in range(calls)]
        assert answers == ["x" * 5000] * calls


HEADER = '{"format":"agent-harness recording","version":1}\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("not json\n", 1),
        ('{"format":"other","version":1}\n', 1),
        ('{"format":"agent-harness recording","version":2}\n', 1),
        ("[]\n", 1),
        (HEADER + '{"role":"a"}\n', 2),
        (HEADER + '{"role":"a","call":1', 2),
        (HEADER + "\n", 2),
        (HEADER + "null\n", 2),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, text, line):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    for use in (ReplayTransport, lambda p: RecordingTransport(ScriptedTransport([]), p, plain)):
        with pytest.raises(ConfigError, match=f"line {line} of the recording"):
            use(path)


def test_a_file_cut_at_any_byte_is_refused_or_shorter(tmp_path):
    raw = record(tmp_path / "r.jsonl").read_bytes()
    cut = tmp_path / "cut.jsonl"
    ends = [index + 1 for index, byte in enumerate(raw) if byte == 10]
    for size in [*range(0, len(raw), 97), *ends[1:]]:
        cut.write_bytes(raw[:size])
        if size in ends[1:]:
            ReplayTransport(cut)
        else:
            with pytest.raises(ConfigError):
                ReplayTransport(cut)


def test_a_file_that_is_not_there_or_holds_no_call_is_said_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        ReplayTransport(tmp_path / "none")
    (tmp_path / "r").write_text(HEADER)
    with pytest.raises(ConfigError, match="holds no call"):
        ReplayTransport(tmp_path / "r")


def test_a_place_that_cannot_be_written_is_found_before_any_call(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordingTransport(ScriptedTransport([]), tmp_path / "no" / "r", plain)


def test_a_recording_that_can_be_written_no_more_ends_the_call_and_bills_it(tmp_path):
    path = tmp_path / "r"
    transport = RecordingTransport(ScriptedTransport([reply()]), path, plain)
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(ModelFault, match="cannot be written") as caught:
        transport.send(ask(USER), 9)
    assert caught.value.usage == Usage(100, 10)


def test_a_replay_imports_no_vendor():
    code = (
        "import sys, agent_harness.models.client, agent_harness.models.recording as r\n"
        "print([m for m in ('litellm', 'openai', 'httpx', 'docker') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def items(count: int, turns: int):
    """Conversations of one role about several items, each a list of requests and answers."""
    out = []
    for item in range(count):
        history, calls = [Message("system", "You fix."), Message("user", f"item {item}")], []
        for turn in range(turns):
            answer = reply(f"look {turn}", calls=[ToolCall(f"c{turn}", "bash", "{}")])
            calls.append((ask(*history), answer))
            history = [*history, answer.message, Message("tool", f"{item} {turn}, 0.1s", tool_call_id=f"c{turn}")]
        out.append(calls)
    return out


def test_items_recorded_side_by_side_replay_one_after_the_other(tmp_path):
    path, work = tmp_path / "r.jsonl", items(3, 4)
    threads = [threading.Thread(target=record, args=(path, calls)) for calls in work]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    replay = ReplayTransport(path)
    for request, answer in [pair for calls in reversed(work) for pair in calls]:
        assert replay.send(request, 1) == answer


def test_the_same_item_twice_is_served_twice_and_not_three_times(tmp_path):
    path, (calls,) = tmp_path / "r.jsonl", items(1, 2)
    for text in ("first", "second"):
        record(path, [(calls[0][0], reply(text)), calls[1]])
    replay = ReplayTransport(path)
    assert [replay.send(calls[0][0], 1).message.content for _ in range(2)] == ["first", "second"]
    with pytest.raises(ReplayDrift, match="call 2 of the implementer is not what was recorded: message 2"):
        replay.send(calls[0][0], 1)


def test_of_several_items_the_nearest_tells_the_difference(tmp_path):
    path = tmp_path / "r.jsonl"
    for calls in items(3, 3):
        record(path, calls)
    history = [*items(2, 3)[1][2][0].messages[:-1], Message("tool", "1 1, another, 0.1s", tool_call_id="c1")]
    line = drift(path, [(ask(*history), None)]).line
    assert "call 6 of the implementer" in line and "recorded '1 1, 0.1s', now '1 1, another, 0.1s'" in line


def test_a_history_in_which_something_was_elided_is_written_from_there_on(tmp_path):
    (calls,) = items(1, 4)
    *before, (request, answer) = calls
    short = [*request.messages[:3], Message("tool", "[elided]", tool_call_id="c0"), *request.messages[4:]]
    path = record(tmp_path / "r.jsonl", [*before, (ask(*short), answer)])
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["start"], len(last["messages"])) == (3, len(short) - 3)
    replay = ReplayTransport(path)
    for asked, said in [*before, (ask(*short), answer)]:
        assert replay.send(asked, 1) == said


@pytest.mark.parametrize("size", range(1, 5))
def test_a_shorter_history_is_kept_as_it_was(tmp_path, size):
    (calls,) = items(1, 3)
    request, answer = calls[-1]
    pairs = [calls[-1], (ask(*request.messages[:size]), answer), calls[-1]]
    replay = ReplayTransport(record(tmp_path / "r.jsonl", pairs))
    for asked, said in pairs:
        assert replay.send(asked, 1) == said


def test_how_many_bytes_were_cut_is_no_difference():
    one = "[... 80123 bytes cut; whole output: /tmp/.harness-output/0001.txt ...]"
    assert first_difference(one, one.replace("80123", "80124")) is None
    assert first_difference(one, one.replace("0001", "0002")) is not None
    one = "[exit code 0; 9120 bytes elided: the output of `cat a` is in /tmp/x]"
    assert first_difference(one, one.replace("9120", "9121")) is None
    assert first_difference("9120 bytes read", "9121 bytes read") is not None


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ('{"format":"agent-harness recording","version":7}', "it is of version 7, and this program reads version 1"),
        ('{"format":"cassette","version":1}', "it is no agent-harness recording"),
        ('{"version":1}', "'format' is missing"),
    ],
)
def test_a_recording_of_something_else_says_of_what(tmp_path, header, words):
    (tmp_path / "r").write_text(header + "\n")
    with pytest.raises(ConfigError, match=words) as caught:
        ReplayTransport(tmp_path / "r")
    assert "\n" not in caught.value.line and "Next: record the run again" in caught.value.line
