"""mini-swe-agent's loop behind the port: the same run as the plain loop gives, and nothing of it leaks out."""

import os
import subprocess
import sys

import pytest

from agent_harness.errors import ModelFault, ModelFaultKind, SandboxLost
from agent_harness.ports import Turn
from agent_harness.types import Message, ToolCall
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from fakes.model import bash, call, says
from fakes.roles import DONE, PlainLoop, RoleKit

SUBMIT = says(call("submit", **DONE))
BROKEN = says(ToolCall("b", "bash", "{"))
SCRIPTS = {
    "submitted": [says(bash("echo 1"), bash("echo 2")), BROKEN, says(text="hm"), says(bash("ls")), SUBMIT],
    "malformed": [says(bash("ls")), BROKEN, BROKEN, BROKEN],
    "empty": [says()] * 3,
    "loop": [says(bash("ls"))] * 6,
    "fault": [says(bash("ls")), ModelFault(ModelFaultKind.CONTEXT, "too long")],
}


class Host:
    """A host that answers from a list, and ends after its last turn."""

    def __init__(self, turns, fault=None):
        self.turns, self.fault, self.histories = list(turns), fault, []

    def ask(self, history):
        self.histories.append(history)
        return self.turns.pop(0)

    def act(self, turn):
        if self.fault:
            raise self.fault
        return [Message("tool", "ok", (), call.id) for call in turn.calls], not self.turns


def turn(n):
    calls = (ToolCall(f"c{n}", "bash", "{}"),)
    return Turn(Message("assistant", "", calls), calls)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_model_is_asked_exactly_as_by_the_plain_loop(tmp_path, name):
    kits = [RoleKit(tmp_path, loop=loop) for loop in (PlainLoop(), MiniSweLoop())]
    plain, mini = [(kit.run(*SCRIPTS[name]), kit) for kit in kits]
    assert plain[1].model.requests == mini[1].model.requests
    assert (plain[0].ended, plain[0].detail, plain[0].spend) == (mini[0].ended, mini[0].detail, mini[0].spend)
    assert plain[1].recorder.kinds() == mini[1].recorder.kinds()


def test_history_grows_by_the_same_message_objects_and_is_no_template():
    opening = [Message("system", "{{ 1/0 }} {% nonsense"), Message("user", "{{ task }}\n"), Message("user", "more")]
    turns = [turn(1), turn(2), turn(3)]
    host = Host(turns)
    assert MiniSweLoop().run(opening, host, 3) is True
    assert all(a is b for a, b in zip(host.histories[2], opening, strict=False))
    assert host.histories[2][3] is turns[0].message and len(host.histories[2]) == 7


def test_malformed_turns_in_a_row_are_bounded_by_its_own_counter():
    bad = Turn(Message("assistant", "?"), (), (Message("user", "no"),))
    host = Host([bad, turn(1), bad, bad, turn(2)])
    assert MiniSweLoop().run([], host, 2) is False
    assert len(host.turns) == 1
    with pytest.raises(ValueError, match="at least 1"):
        MiniSweLoop().run([], host, 0)


@pytest.mark.parametrize("fault", [SandboxLost("gone"), KeyboardInterrupt(), ZeroDivisionError("bug")])
def test_what_the_host_raises_goes_through_unchanged(fault):
    with pytest.raises(type(fault)) as caught:
        MiniSweLoop().run([], Host([turn(1), turn(2)], fault), 3)
    assert caught.value is fault


PROBE = """
import os, sys
from agent_harness_adapters.miniswe_loop import MiniSweLoop
assert not [name for name in sys.modules if name.startswith("minisweagent")]
before = dict(os.environ)
from agent_harness.ports import Turn
from agent_harness.types import Message, ToolCall
class Host:
    def ask(self, history):
        return Turn(Message("assistant", ""), (ToolCall("a", "bash", "{}"),))
    def act(self, turn):
        return [Message("tool", "x", (), "a")], True
assert MiniSweLoop().run([], Host(), 3)
assert "minisweagent.agents.default" in sys.modules
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
"""


@pytest.mark.parametrize("own", [{}, {"MSWEA_GLOBAL_CONFIG_DIR": "mine", "MSWEA_SILENT_STARTUP": ""}])
def test_its_import_is_silent_reads_no_user_file_and_writes_none(tmp_path, own):
    home, temp = tmp_path / "home", tmp_path / "temp"
    for folder in (home / ".config" / "mini-swe-agent", temp):
        folder.mkdir(parents=True)
    (home / ".config" / "mini-swe-agent" / ".env").write_text("OPENAI_API_KEY=canary\n")
    files = sorted(home.rglob("*"))
    env = {"HOME": str(home), "TMPDIR": str(temp), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **own}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(home.rglob("*")) == files and not list(temp.iterdir()) and not (tmp_path / "mine").exists()
