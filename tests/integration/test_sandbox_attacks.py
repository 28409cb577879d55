"""The attack suite itself: how many probes, that what is open is listed, and that they see an open door."""

import contextlib
import re
from collections import Counter
from importlib import resources

import pytest

from agent_harness.types import CommandEnd, CommandResult, Mode
from agent_harness_sandbox.attacks import attack, probes
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.conformance import Box
from agent_harness_sandbox.image import OWN_IMAGE

DESIGN = resources.files("agent_harness_sandbox").joinpath("DESIGN.md").read_text()


def test_there_are_many_and_the_threat_model_counts_them():
    every = list(probes())
    assert len({probe.name for probe in every}) == len(every)
    for mode in Mode:
        assert sum(not probe.open for probe in probes(mode)) >= 60
    rows = dict(re.findall(r"^\| (\w+) \| (\d+) \|", DESIGN, re.M))
    assert rows == {family: str(count) for family, count in Counter(probe.family for probe in every).items()}
    assert f"**{len(every)} probes**" in DESIGN


def test_what_is_open_is_listed_with_its_reason():
    listed = set(re.findall(r"^- `(.+)`: ", DESIGN, re.M))
    assert listed == {probe.name for probe in probes() if probe.open}


class Careless:
    """A container as `docker run` makes it for somebody in a hurry: root, capabilities, no filter, a bridge."""

    def __init__(self, container):
        self.container = container

    def execute(self, command):
        words = ["timeout", "20", "bash", "-c", command.script]
        done = self.container.exec_run(words, environment=dict(command.env), workdir="/workspace")
        return CommandResult(CommandEnd.EXITED, done.exit_code, done.output, b"", len(done.output), 0.0, "")

    def read_file(self, path, limit):
        raise ValueError(path)

    write_file = read_file

    def describe(self):
        return {}

    def close(self):
        self.container.remove(force=True)


def safe(probe):
    return not probe.harms and not probe.open and probe.family in {"mounts", "server", "kernel", "privilege"}


@pytest.mark.docker
def test_the_probes_find_a_careless_container_open(tmp_path):
    """Without this, all of them might be closed because they do not work. Nothing is tried that could do harm."""
    (tmp_path / "f").write_text("1\n")
    with contextlib.closing(connect()) as client:
        loose = {
            "cap_add": ["SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN"],
            "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
            "user": "0:0",
        }
        mounts = {str(tmp_path): {"bind": "/workspace", "mode": "rw"}}
        container = client.containers.run(OWN_IMAGE, ["sleep", "600"], detach=True, volumes=mounts, **loose)
        sandbox = Careless(container)
        try:
            box = Box(sandbox, tmp_path, 0)
            found = attack(box, Mode.RO, safe)
        finally:
            sandbox.close()
    opened = {name for name, seen in found.items() if "OPEN" in seen}
    assert len(opened) >= 40, sorted(found)
    assert {"mount a tmpfs", "a block device of the host's disk", "open process 1's memory", "become root"} <= opened
    assert "capabilities of any set" in found
