"""The attack suite itself: how many probes, that what is open is listed, and that they see an open door."""

import contextlib
import re
import shlex
from collections import Counter
from importlib import resources

import pytest

from agent_harness.types import Mode
from agent_harness_sandbox.attacks import probes
from agent_harness_sandbox.client import connect
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


def safe(probe):
    """Does no harm where it succeeds, and prints what it saw."""
    shared = {"mounts", "server", "kernel", "privilege"}
    return probe.family in shared and not probe.shell and not (probe.harms or probe.open) and probe.ends == "exited"


@pytest.mark.docker
def test_the_probes_find_a_careless_container_open(tmp_path):
    """Without this, all of them might be closed because they do not work. Nothing is tried that could do harm."""
    wanted = list(filter(safe, probes()))
    lines = [
        f"echo {shlex.quote(one.name)}: $(timeout 9 unshare -m bash -c {shlex.quote(one.script)} 2>&1)"
        for one in wanted
    ]
    (tmp_path / "all.sh").write_text("\n".join(lines))
    with contextlib.closing(connect()) as client:
        loose = {"cap_add": ["SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN"], "security_opt": ["seccomp=unconfined"]}
        mounts = {str(tmp_path): {"bind": "/workspace", "mode": "rw"}}
        container = client.containers.run(OWN_IMAGE, ["sleep", "600"], detach=True, volumes=mounts, **loose)
        try:
            said = container.exec_run(["bash", "/workspace/all.sh"], user="0:0").output.decode()
        finally:
            container.remove(force=True)
    opened = {line.rpartition(": ")[0] for line in said.splitlines() if line.endswith("OPEN")}
    assert len(opened) >= 40, said
    assert {"mount a tmpfs", "a block device of the host's disk", "open process 1's memory", "become root"} <= opened
