"""mini-swe-agent's own Docker environment and ours, side by side on one table of cases, and under its own agent."""

import contextlib
import logging
import os

import pytest

from agent_harness_adapters import miniswe_loop
from agent_harness_adapters.miniswe_environment import harness_environment
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.image import OWN_IMAGE
from sandboxes import Factory

miniswe_loop._vendor()  # its first import makes a configuration folder; this one makes it where it is taken away again
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.docker import DockerEnvironment  # noqa: E402
from minisweagent.exceptions import Submitted  # noqa: E402

pytestmark = pytest.mark.docker
SETTINGS = {"cwd": "/tmp", "env": {"GIVEN": "a b'c", "BOTH": "env"}, "forward_env": ["FORWARDED", "BOTH", "NOT_SET"]}
CASES = {
    "output": {"command": "echo out; sleep 0.2; echo err >&2; sleep 0.2; printf 'no newline'"},
    "nothing": {},
    "exit code": {"command": "echo x; exit 7"},
    "no program": {"command": "no-such-program 2>/dev/null"},
    "a signal": {"command": "kill -9 $$"},
    "variables": {"command": "echo $GIVEN $BOTH $FORWARDED ${NOT_SET-unset}"},
    "folder": {"command": "pwd"},
    "state": {"command": "echo ${LEFT-none}; LEFT=1; cd /; false; pwd"},
    "several lines": {"command": "for i in 1 2\ndo\n  echo \"$i\" '$i' \\\n  more\ndone <<X\nX\n"},
    "not text": {"command": r"printf 'a\xff\r\nb\rc\n\xe2\x82\xac'"},
    "input": {"command": "cat; echo end"},
    "login shell": {"command": "shopt -q login_shell && echo login"},
    "a megabyte": {"command": "head -c 1000000 /dev/zero | tr '\\0' x"},
    "almost submitted": {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; false"},
    "submitted late": {"command": "echo x; echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"},
    "submitted": {"command": r"printf '\n  COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\nthe\nanswer'"},
}


@pytest.fixture(scope="module")
def both():
    factory = Factory()
    os.environ.update(FORWARDED="yes", BOTH="forwarded")
    theirs = DockerEnvironment(
        image=OWN_IMAGE, run_args=["--network", "none"], logger=logging.getLogger("test"), **SETTINGS
    )
    try:
        yield theirs, harness_environment(factory().sandbox, **SETTINGS)
    finally:
        with contextlib.closing(connect()) as client:  # its own cleanup takes ten seconds in the background
            client.api.remove_container(theirs.container_id, force=True)
        theirs.container_id = None
        factory.close()


def outcome(environment, action, *args, **more):
    try:
        return environment.execute(action, *args, **more)
    except Submitted as done:
        return done.messages


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_the_same(both, case):
    theirs, ours = (outcome(environment, CASES[case]) for environment in both)
    assert ours == theirs
    if case == "submitted":
        assert ours[0]["extra"] == {"exit_status": "Submitted", "submission": "the\nanswer"}


def test_another_folder_and_a_folder_that_is_not_there(both):
    assert outcome(both[1], {"command": "pwd"}, "/usr") == outcome(both[0], {"command": "pwd"}, "/usr")
    theirs, ours = (outcome(environment, {"command": "pwd"}, "/no/such") for environment in both)
    assert theirs["returncode"] != 0
    assert ours["returncode"] != 0
    assert "/no/such" in ours["output"]


def test_a_timeout_has_the_same_shape(both):
    theirs, ours = (outcome(environment, {"command": "echo said; sleep 30"}, timeout=1) for environment in both)
    assert ours["output"] == theirs["output"] == "said\n"
    assert ours["returncode"] == theirs["returncode"] == -1
    assert ours["extra"]["exception_type"] == theirs["extra"]["exception_type"] == "TimeoutExpired"
    assert ours["exception_info"].startswith("An error occurred while executing the command: Command ")
    assert "timed out after 1 seconds" in ours["exception_info"]
    assert "timed out after 1 seconds" in theirs["exception_info"]
    assert both[1].execute({"command": "pgrep -c sleep"})["output"] == "0\n"  # and here nothing is left


def test_templates_and_trajectories_find_what_they_name(both):
    theirs, ours = (environment.get_template_vars(task="t", env={"MORE": "1"}) for environment in both)
    assert ours.keys() == theirs.keys()
    named = ours.keys() - {"image", "run_args"}  # the one setting of theirs that says how a container is made
    assert {key: ours[key] for key in named} == {key: theirs[key] for key in named}
    assert ours["image"]
    found = both[1].serialize()["info"]["config"]
    assert found["environment"]["cwd"] == "/tmp"
    assert set(found) == set(both[0].serialize()["info"]["config"])
    assert found["environment_type"].endswith(".HarnessEnvironment")


class Scripted:
    """Their port Model, answering from a list."""

    def __init__(self, *commands):
        self.commands, self.config, self.seen = list(commands), None, []

    def query(self, messages, **_):
        self.seen = messages
        actions = [{"command": self.commands.pop(0)}]
        return {"role": "assistant", "content": "x", "extra": {"actions": actions, "cost": 0.0}}

    def format_message(self, **parts):
        return parts

    def format_observation_messages(self, message, outputs, template_vars=None):
        return [{"role": "user", "content": repr(output)} for output in outputs]

    def get_template_vars(self, **_):
        return {}

    def serialize(self):
        return {}


def test_its_own_agent_runs_on_ours_as_on_its_own(both):
    told = []
    for environment in both:
        model = Scripted("echo 1 >f; cat f", "exit 3", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat f")
        agent = DefaultAgent(model, environment, system_template="{{cwd}} {{system}}", instance_template="{{task}}")
        result = agent.run("do it")
        assert agent.serialize()["info"]["config"]["environment"]["cwd"] == "/tmp"
        told.append((result, [message["content"] for message in model.seen]))
    assert told[0] == told[1]
    assert told[1][0]["submission"] == "1\n"


def test_a_lost_sandbox_is_an_error_that_the_agent_reads():
    factory = Factory()
    environment = harness_environment(factory().sandbox)
    environment.cleanup()
    environment.cleanup()
    found = environment.execute({"command": "true"})
    assert (found["returncode"], found["extra"]["exception_type"]) == (-1, "SandboxLost")
    factory.close()
