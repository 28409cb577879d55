"""The guard where it is used: in a role run, from the configuration, on the command line."""

import json

import pytest

from agent_harness.cli import main
from agent_harness.config import load
from agent_harness.errors import ConfigError
from agent_harness.guard import RULES, Guard
from agent_harness.types import Ended
from agent_harness.types.kinds import Kind
from fakes.model import bash, call, says
from fakes.roles import DONE, RoleKit


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    return tmp_path


def test_a_refusal_is_an_observation_that_is_logged_and_ends_nothing(tmp_path):
    (tmp_path / "calc.py").write_text("x = 1\n")
    kit = RoleKit(tmp_path, screen=Guard().refusal, redact=lambda text: text.replace("tok-1", "***"))
    steps = [says(bash("git push https://tok-1@example.org/a")), says(bash("ls")), says(call("submit", "s", **DONE))]
    ended = kit.run(*steps)
    assert ended.ended is Ended.SUBMITTED
    told = kit.told(1)[-1].content
    assert (
        told.startswith("refused, nothing of this command was run:") and "rule `push`" in told and "tok-1" not in told
    )
    refused = [event.data for event in kit.recorder.events if event.kind == Kind.TOOL_REFUSED]
    assert [(one["tool"], "rule `push`" in one["reason"]) for one in refused] == [("bash", True)]
    ran = [event.data["command"] for event in kit.recorder.events if event.kind == Kind.COMMAND_STARTED]
    assert ran == ["ls"]


def test_the_configuration_names_rules_and_exceptions(project):
    assert load(project, env={}).config.guard.rules == tuple(RULES)
    (project / "harness.toml").write_text('[guard]\nrefuse = ["push"]\nallow = ["git push /tmp/*"]\n')
    settings = load(project, env={}).config.guard
    assert (settings.rules, settings.allow) == (("push",), ("git push /tmp/*",))
    assert load(project, env={"AGENT_HARNESS_GUARD__ENABLED": "no"}).config.guard.rules == ()
    (project / "harness.toml").write_text('[guard]\nrefuse = ["pushes"]\n')
    with pytest.raises(ConfigError, match=r"guard\.refuse must be 'push' or"):
        load(project, env={})


def test_the_command_line_explains(project, capsys):
    assert main.guarded(["guard", "ls; sh -c 'git push'"]) == 1
    out = capsys.readouterr().out
    assert "push  4-20  git push" in out and "/workspace" in out
    assert main.guarded(["guard", "echo 'git push'", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["allowed"], found["refused"], found["programs"][0]["words"]) == (True, [], ["echo", "git push"])
    assert main.guarded(["guard", "git push", "--set", "guard.enabled=no"]) == 0
    assert "the guard is off" in capsys.readouterr().out
