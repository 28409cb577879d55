"""Every way to go round in circles ends, with a name for it, through mini-swe-agent's own loop."""

from itertools import count

import pytest

from agent_harness.types import Ended, Finish, Limits, ToolCall
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from agent_harness_roles.host import MAX_MALFORMED
from agent_harness_roles.loopguard import STOP, WARN
from fakes.model import bash, call, says
from fakes.roles import DONE, RoleKit
from fakes.sandbox import result

EMPTY, PROSE = says(), says(text="The task is complete.")
BROKEN, UNKNOWN = says(ToolCall("b", "bash", '{"command": ')), says(call("python", code="1"))
CUT = says(bash("ls"), finish=Finish.LENGTH)
SUBMIT = says(call("submit", **DONE))
LIMIT = 60


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "calc.py").write_text("a = 0\nb = 0\n")
    return RoleKit(tmp_path, loop=MiniSweLoop(), limits=Limits(LIMIT, 10**7, 10**13, 3600.0))


def forever(*replies):
    """The replies over and over, up to more than any limit."""
    return [reply for _ in range(LIMIT) for reply in replies]


def edit(old, new):
    return says(call("edit", path="calc.py", edits=[{"old": old, "new": new}]))


CIRCLES = {
    "empty": (Ended.EMPTY, MAX_MALFORMED, [EMPTY]),
    "prose": (Ended.MALFORMED, MAX_MALFORMED, [PROSE]),
    "broken": (Ended.MALFORMED, MAX_MALFORMED, [BROKEN]),
    "unknown tool": (Ended.MALFORMED, MAX_MALFORMED, [UNKNOWN]),
    "cut": (Ended.MALFORMED, MAX_MALFORMED, [CUT]),
    "empty and malformed": (Ended.MALFORMED, MAX_MALFORMED, [EMPTY, BROKEN]),
    "one action": (Ended.LOOP, STOP, [says(bash("cat calc.py"))]),
    "one action between malformed replies": (Ended.LOOP, 2 * STOP - 1, [says(bash("ls")), BROKEN]),
    "a failing action": (Ended.LOOP, STOP, [says(bash("false"))]),
    "A-B-A-B": (Ended.LOOP, 2 * STOP, [says(bash("ls")), says(bash("cat calc.py"))]),
    "A-B-C": (Ended.LOOP, 3 * STOP, [says(bash("ls")), says(bash("pwd")), says(bash("cat calc.py"))]),
    "there and back": (Ended.LOOP, 2 * STOP, [edit("a = 0", "a = 1"), edit("a = 1", "a = 0")]),
    "an edit that is refused": (Ended.LOOP, STOP, [edit("nowhere", "x")]),
    "two calls at once": (Ended.LOOP, STOP, [says(bash("ls", "x"), bash("pwd", "y"))]),
    "a submission that is refused": (Ended.MALFORMED, MAX_MALFORMED, [SUBMIT]),
    "filtered": (Ended.REFUSED, 1, [says(bash("ls"), finish=Finish.FILTERED)]),
}


@pytest.mark.parametrize(("ended", "calls", "replies"), list(CIRCLES.values()), ids=list(CIRCLES))
def test_each_circle_ends_with_its_name(kit, ended, calls, replies):
    outcome = kit.run(*forever(*replies))
    assert (outcome.ended, len(kit.model.requests)) == (ended, calls)
    assert outcome.detail and outcome.submission is None
    assert outcome.spend.steps == calls


def test_a_command_that_is_refused_again_and_again_ends_too(kit):
    kit.screen = lambda command: "refused: rule x" if "push" in command else ""
    assert kit.run(*forever(says(bash("git push")))).ended is Ended.LOOP


def test_what_varies_by_itself_hides_no_circle(kit):
    turn = count(1)

    def act(_command):
        n = next(turn)
        text = f"12:00:{n:02} at 0x7f00{n:06x}: 1 failed in 0.{n}s\n" + "x" * 100
        return result(text + "y\n" * 5000, saved_to=f"/tmp/.harness-output/{n:04d}.txt")

    kit.sandbox = type(kit.sandbox)(kit.root, act=act)
    outcome = kit.run(*forever(says(bash("pytest -v"))))
    assert (outcome.ended, len(kit.model.requests)) == (Ended.LOOP, STOP)


def test_a_warning_comes_first_and_heeding_it_is_enough(kit):
    same = [says(bash("ls"))] * (STOP - 1)
    outcome = kit.run(*same, says(bash("cat calc.py")), *same, says(bash("pwd")), SUBMIT)
    assert outcome.ended is Ended.SUBMITTED
    warned = [m.content for m in kit.told() if "[harness] You have done this" in m.content]
    assert len(warned) == 2 * (STOP - WARN)


def test_waiting_for_something_that_moves_is_no_circle(kit):
    turn = count(1)
    kit.sandbox = type(kit.sandbox)(kit.root, act=lambda _: result(f"{next(turn)} of 20 done\n"))
    waits = [says(bash("sleep 5; tail -1 log"))] * 20
    assert kit.run(*waits, SUBMIT).ended is Ended.SUBMITTED
