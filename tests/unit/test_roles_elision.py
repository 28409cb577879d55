"""Cheap turns: what is sent only grows, but for rare steps that leave a line for each old output."""

import json
import random
from itertools import pairwise

import pytest

from agent_harness.demo import RECORDING
from agent_harness.models.pricing import PriceTable
from agent_harness.models.recording import Recording, RecordingTransport, ReplayTransport
from agent_harness.models.routes import Route, history_chars
from agent_harness.types import Ended, Message
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from agent_harness_roles.elision import NEWEST, Elision
from fakes.model import bash, call, says
from fakes.model_parts import ScriptedTransport
from fakes.roles import DONE, RoleKit
from fakes.sandbox import result

ABOVE = 100_000


def conversation(turns: int, seed: int = 1):
    """Replies, and the outputs of their commands: long and short ones, an edit among them."""
    dice = random.Random(seed)
    replies, outputs = [], []
    for number in range(turns):
        if number % 7 == 5:
            edit = call("edit", path="a.py", edits=[{"old": f"x{number} = 0", "new": f"x{number} = 1"}])
            replies.append(says(edit, text=f"Now I change x{number}."))
            continue
        calls = [bash(f"cat part-{number}-{n}", f"c{n}") for n in range(dice.randrange(1, 3))]
        outputs += [f"{number} {n} " + "line of a file\n" * dice.randrange(400) for n in range(len(calls))]
        replies.append(says(*calls, text=f"I look at part {number}."))
    return [*replies, says(call("submit", **DONE))], outputs


def played(tmp_path, turns=45, seed=1, **settings):
    """The conversation through the real runner and loop."""
    replies, outputs = conversation(turns, seed)
    (tmp_path / "a.py").write_text("".join(f"x{n} = 0\n" for n in range(turns)))
    kit = RoleKit(tmp_path, loop=MiniSweLoop(), **{"history_chars": ABOVE, **settings})
    count = iter(range(1, 1000))

    def act(command):
        number, text = next(count), outputs[next(told)]
        saved = f"/tmp/.harness-output/{number:04d}.txt" if len(text) > command.save else ""
        return result(text, saved_to=saved)

    told = iter(range(len(outputs)))
    kit.sandbox = type(kit.sandbox)(tmp_path, act=act)
    return kit, replies


def sent(kit):
    return [request.messages for request in kit.model.requests]


def steps(requests):
    """Where a request does not go on from the last one."""
    return [n for n, (one, two) in enumerate(pairwise(requests), 1) if two[: len(one)] != one]


@pytest.mark.parametrize("seed", range(4))
def test_each_request_begins_with_the_last_one_but_for_rare_steps(tmp_path, seed):
    kit, replies = played(tmp_path, seed=seed)
    ended = kit.run(*replies)
    assert ended.ended is Ended.SUBMITTED and ended.submission == DONE
    requests = sent(kit)
    assert 1 <= len(steps(requests)) <= len(requests) // 10
    for at in steps(requests):
        before, after = (sum(len(m.content) for m in requests[n][: len(requests[at - 1])]) for n in (at - 1, at))
        assert before - after > ABOVE // 5
        assert requests[at][:2] == requests[0], "system prompt and task stand"
    plain, again = played(tmp_path, seed=seed, history_chars=0)
    plain.run(*again)
    assert steps(sent(plain)) == []
    for short, whole in zip(requests, sent(plain), strict=True):
        assert len(short) == len(whole)
        for one, other in zip(short, whole, strict=True):
            if one != other:
                assert (one.role, one.tool_call_id) == ("tool", other.tool_call_id)
                assert other.content.startswith("[exit code 0]") and len(one.content) < 200 < len(other.content)
                number = other.content.split("\n")[1].split()
                assert f"`cat part-{number[0]}-{number[1]}`" in one.content
                assert f"{len(other.content) - len('[exit code 0]') - 1} bytes" in one.content
                assert one.content.startswith("[exit code 0; ") and "/tmp/.harness-output/" in one.content
    observations = [m for m in requests[steps(requests)[-1]] if m.role == "tool" and len(m.content) > 1000]
    assert len(observations) >= NEWEST


def test_each_observation_is_sent_whole_at_least_once(tmp_path):
    kit, replies = played(tmp_path)
    kit.run(*replies)
    seen = {message.content for request in sent(kit) for message in request}
    plain, again = played(tmp_path, history_chars=0)
    plain.run(*again)
    assert {message.content for message in sent(plain)[-1]} <= seen


def test_nothing_is_elided_that_no_file_holds_or_that_would_free_little(tmp_path):
    kit, replies = played(tmp_path)
    kit.sandbox = type(kit.sandbox)(tmp_path, act=lambda _: result("no file\n" * 700 + str(random.random())))
    kit.run(*replies)
    assert steps(sent(kit)) == []
    words = says(bash("true"), text="I think. " * 3000)
    kit = RoleKit(tmp_path, history_chars=ABOVE)
    kit.run(words, *[says(bash(f"echo {n}")) for n in range(5)], says(call("submit", **DONE)))
    assert steps(sent(kit)) == []


def test_over_text_a_message_with_several_results_keeps_its_heads(tmp_path):
    count = iter(range(1, 100))
    kit = RoleKit(tmp_path, protocol="text", history_chars=ABOVE)
    kit.sandbox = type(kit.sandbox)(
        tmp_path,
        act=lambda c: result(f"{c.script}\n" + "x\n" * 2000, saved_to=f"/tmp/.harness-output/{next(count)}.txt"),
    )
    looks = [says(text=f"```bash\na {n}\n```\n```bash\nb {n}\n```") for n in range(16)]
    kit.run(*looks, says(text=f"```submit\n{json.dumps(DONE)}\n```"))
    requests = sent(kit)
    assert steps(requests)
    old = requests[-1][3].content
    assert old.startswith("Result of bash (1 of 2):\n[exit code 0; 4004 bytes elided: the output of `a 0` is in /tmp/")
    assert "\n\nResult of bash (2 of 2):\n[exit code 0; 4004 bytes elided: the output of `b 0` is in /tmp/" in old


def test_the_same_text_twice_keeps_the_line_that_stands_for_it():
    """Over text nothing but its words tells one result from another: what was elided may not change any more."""
    results = [Message("user", f"Result of bash (1 of 1):\n{n} " + "x" * 3000) for n in range(8)]
    elision = Elision(10_000)
    for n, one in enumerate(results):
        elision.note([one], [Message("user", f"[the output is in {n}]")])
    before = elision.view(results)
    assert before[0].content == "[the output is in 0]"
    elision.note([results[0]], [Message("user", "[the output is in 8]")])
    assert elision.view([*results, results[0]])[0] == before[0]


def test_a_command_in_the_line_is_short_clean_and_on_one_line(tmp_path):
    kit, _ = played(tmp_path)
    kit.sandbox = type(kit.sandbox)(tmp_path, act=lambda c: result("y\n" * 2500, saved_to="/tmp/.harness-output/1.txt"))
    long = "printf '\x07'\n" + "echo   something " * 50
    kit.run(*[says(bash(f"{long} {n}")) for n in range(30)], says(call("submit", **DONE)))
    (line, *_) = [m.content for m in sent(kit)[-1] if "elided" in m.content]
    assert "\n" not in line and "\x07" not in line and len(line) < 200 and "`printf '' echo something echo" in line


class Over:
    """Port Model over a transport."""

    def __init__(self, transport):
        self.transport, self.requests = transport, []

    def complete(self, request, budget):
        self.requests.append(request)
        return self.transport.send(request, 60)


def test_a_recorded_run_with_steps_replays_exactly(tmp_path):
    path = tmp_path / "run.jsonl"
    (tmp_path / "tree").mkdir()
    kit, replies = played(tmp_path / "tree")
    recording = Over(RecordingTransport(ScriptedTransport(list(replies)), path, str))
    kit.speaks = lambda _: recording
    first = kit.run()
    assert first.ended is Ended.SUBMITTED and steps(sent(kit))
    kit, _ = played(tmp_path / "tree")
    replay = Over(ReplayTransport(path))
    kit.speaks = lambda _: replay
    again = kit.run()
    assert (again.ended, again.submission, replay.requests) == (first.ended, first.submission, recording.requests)
    whole = sum(len(json.dumps(m.as_json())) for m in {m for request in recording.requests for m in request.messages})
    assert path.stat().st_size < 1.5 * whole, "a step writes what changed, not the history over and over"


def test_the_demonstration_only_grows():
    recording = Recording(RECORDING)
    recording.read_on()
    for exchanges in recording.exchanges.values():
        for before, after in pairwise(exchanges):
            assert after.history[: len(before.history)] == before.history
            assert after.start == len(before.history)


def test_the_narrowest_route_decides_from_when_on():
    table = PriceTable.load()
    assert history_chars([Route("a", "anthropic/claude-sonnet-5")], table) == 4 * 25_000
    narrow = table.__class__("1", "d", {}, {"x/small": 16_000})
    assert history_chars([Route("a", "x/small"), Route("b", "x/other")], narrow) == 4 * 8_000
    assert history_chars([Route("a", "x/other", history_tokens=100)], narrow) == 400
    assert history_chars([Route("a", "x/other", history_tokens=0)], narrow) == 0
    assert history_chars([], narrow) == 0
    assert all(context >= 50_000 for context in table.contexts.values())
