"""The suite that every sandbox must pass, on a podman service of the test's own, where podman is installed.

It has a minute, and what a busy machine does not get to in it is skipped; AGENT_HARNESS_STRESS=1 has it all tried. The
attacks and the lent interpreter take minutes more: AGENT_HARNESS_TEST_ENGINE=unix:///path/podman.sock has
test_sandbox_docker.py try all of that on any service."""

import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from agent_harness_sandbox import podman, policy
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.image import OWN_IMAGE
from sandboxes import Factory, ours

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]
MINUTE_S = 3600.0 if os.environ.get("AGENT_HARNESS_STRESS") == "1" else 60.0


@pytest.fixture(scope="module", autouse=True)
def service():
    """Where the tests run: its own storage and socket, and the image of this machine's Docker engine."""
    if os.geteuid() or not shutil.which("podman") or not shutil.which("docker"):
        pytest.skip("needs podman, root, and docker to take the image from")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sandbox-podman-", ignore_cleanup_errors=True) as root:
        places = ["--root", f"{root}/root", "--runroot", f"{root}/run", "--tmpdir", f"{root}/tmp"]
        words, socket = ["podman", *places, "--cgroup-manager", "cgroupfs"], f"unix://{root}/s.sock"
        save = subprocess.Popen(["docker", "save", OWN_IMAGE], stdout=subprocess.PIPE)
        loaded = subprocess.run([*words, "load"], stdin=save.stdout, capture_output=True, text=True)
        if save.wait() or loaded.returncode:
            pytest.skip(f"podman does not take the image: {loaded.stderr[-300:]}")
        with (Path(root) / "log").open("wb") as log:
            running = subprocess.Popen([*words, "system", "service", "--time=0", socket], stdout=log, stderr=log)
        try:
            until = time.monotonic() + 20
            while not os.path.exists(socket.removeprefix("unix://")) and time.monotonic() < until:
                time.sleep(0.05)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DOCKER_HOST", socket)
                yield begun
        finally:
            running.terminate()
            running.wait(30)
            subprocess.run([*words, "rm", "--all", "--force"], capture_output=True)
            for line in reversed(Path("/proc/mounts").read_text().splitlines()):
                if (place := line.split()[1]).startswith(root):
                    subprocess.run(["umount", "-l", place], capture_output=True)


@pytest.fixture
def make_sandbox(service):
    if time.monotonic() - service > MINUTE_S:
        pytest.skip("the minute of podman's part is over; AGENT_HARNESS_STRESS=1 has all of it tried")
    factory = Factory()
    yield factory
    factory.close()


@pytest.fixture
def client():
    with contextlib.closing(connect()) as client:
        yield client


def volumes(client):
    return [one["Name"] for one in client.api.volumes()["Volumes"] or ()]


def test_it_is_podman_and_every_setting_is_compared(make_sandbox, client):
    """Each property in the runtime's configuration, taken out or changed, is a difference."""
    box = make_sandbox()
    name, spec = box.sandbox.describe()["name"], box.sandbox._spec
    assert isinstance(client.api, podman.Podman)
    assert policy.differences(spec, client.api.account(name)) == []
    own = client.api.get(f"{client.api.base_url}/v4.0.0/libpod/containers/{name}/json").json()
    given = json.loads(Path(own["OCIConfigPath"]).read_text())
    made = dict.fromkeys(policy.TMPFS, "nosuid=")
    good, bind = (
        podman._told(given, made),
        {"type": "bind", "source": "/", "destination": "/host", "options": ["rbind"]},
    )
    without_ipc = [one for one in given["linux"]["namespaces"] if one["type"] != "ipc"]
    changes = {
        "SecurityOpt": [("linux", "seccomp", None), ("process", "noNewPrivileges", False)],
        "CapDrop": [("process", "capabilities", {"bounding": ["CAP_SYS_ADMIN"]})],
        "IpcMode": [("linux", "namespaces", without_ipc)],
        "PidMode": [("linux", "namespaces", [{"type": "pid", "path": "/proc/1/ns/pid"}])],
        "Sysctls": [("linux", "sysctl", {}), ("linux", "sysctl", {"kernel.x": "1"})],
        "Ulimits": [("process", "rlimits", [])],
        "MaskedPaths": [("linux", "maskedPaths", [])],
        "ReadonlyPaths": [("linux", "readonlyPaths", [])],
        "Mounts": [("mounts", None, [*given["mounts"], bind])],
        "Tmpfs": [("mounts", None, [*given["mounts"], bind | {"type": "tmpfs", "destination": "/run"}])],
    }
    for setting, ways in changes.items():
        for part, key, value in ways:
            seen = copy.deepcopy(given)
            if key is None:
                seen[part] = value
            else:
                seen[part][key] = value
            assert podman._told(seen, made)[setting] != good[setting], (setting, value)
    for setting in good:
        seen = client.api.account(name)
        seen["HostConfig"][setting] = [] if setting in {"MaskedPaths", "ReadonlyPaths"} else "something else"
        assert policy.differences(spec, seen), setting


def test_its_owners_death_ends_a_container_and_the_next_reap_takes_all_of_it(make_sandbox, client):
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from sandboxes import Factory\n"
        "box = Factory()(); print(box.sandbox.describe()['name'], box.tree, flush=True)\n"
        "from agent_harness.types import Command\n"
        "box.sandbox.execute(Command('sleep 300', timeout_s=300))"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    name, tree = child.stdout.readline().split()
    assert {one for one in volumes(client) if one.startswith(name)} == {f"{name}-tmp", f"{name}-scratch"}
    child.kill()
    child.wait()
    until = time.monotonic() + 10
    while client.api.inspect_container(name)["State"]["Running"] and time.monotonic() < until:
        time.sleep(0.05)
    assert not client.api.inspect_container(name)["State"]["Running"]
    assert name in make_sandbox.engine.reap()
    assert not any(one.startswith(name) for one in volumes(client))
    shutil.rmtree(Path(tree).parent)


def test_nothing_is_left(make_sandbox, client):
    make_sandbox().sandbox.close()
    assert ours(client) == [] and not [one for one in volumes(client) if one.startswith("agent-harness-")]


# after ours, which are tried first
from agent_harness_sandbox.conformance import *  # noqa: E402, F403
