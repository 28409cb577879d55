"""The profile, without an engine: what is asked for, and that any drift from it is seen."""

import ast
import copy
import json
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from agent_harness.errors import UsageError
from agent_harness.types import Mode, Mount, SandboxSpec, Service
from agent_harness_sandbox import podman, policy
from agent_harness_sandbox.docker_engine import image_problem
from agent_harness_sandbox.image import OWN_IMAGE, PACKAGES, RECIPE, dockerfile
from agent_harness_sandbox.owner import Owner

SPEC = SandboxSpec(
    mode=Mode.RO,
    image="x",
    workdir="/workspace",
    mounts=(Mount("/srv/a b:ö", "/workspace", True), Mount("/srv/base", "/base", True)),
    labels={"agent-harness.run": "r1"},
    env={"CI": "1"},
)


def account(spec=SPEC):
    """What an engine that did as asked says of the container."""
    body = copy.deepcopy(policy.create_body(spec, "sha256:1"))
    host = body.pop("HostConfig") | {
        "MaskedPaths": sorted(policy.MASKED),
        "ReadonlyPaths": sorted(policy.READ_ONLY_PATHS),
    }
    body["Env"] = ["PATH=/image/bin", *body["Env"]]
    mounts = [
        {"Type": "bind", "Source": mount.source, "Destination": mount.target, "RW": not mount.read_only}
        for mount in spec.mounts
    ]
    return {"Image": "sha256:1", "Config": body, "HostConfig": json.loads(json.dumps(host)), "Mounts": mounts}


def test_an_engine_that_did_as_asked_has_no_differences():
    assert policy.differences(SPEC, account()) == []


def test_every_option_of_the_profile_is_missed_when_it_is_not_there():
    asked = policy.create_body(SPEC, "")
    wanted = [key for key, value in asked["HostConfig"].items() if value]
    assert len(wanted) > 15
    for key in [*wanted, "MaskedPaths", "ReadonlyPaths"]:
        seen = account()
        del seen["HostConfig"][key]
        assert any(key in line for line in policy.differences(SPEC, seen)), key
    assert policy.differences(SPEC, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Privileged", True), ("CapAdd", ["SYS_PTRACE"]), ("Binds", ["/:/host"]), ("PidMode", "host"), ("UsernsMode", "host"), ("GroupAdd", ["0"]),
        ("Devices", [{"PathOnHost": "/dev/kvm"}]), ("VolumesFrom", ["x"]), ("NetworkMode", "bridge"), ("PidsLimit", 0), ("OomKillDisable", True),
        ("SecurityOpt", ["seccomp=unconfined", "no-new-privileges:true"]), ("MemorySwap", -1), ("PublishAllPorts", True), ("AutoRemove", True),
    ],
)  # fmt: skip
def test_every_addition_is_seen(key, value):
    seen = account()
    seen["HostConfig"][key] = value
    assert [line for line in policy.differences(SPEC, seen) if f"HostConfig.{key}" in line]


def test_users_commands_mounts_and_labels_are_compared():
    for part, value in {
        "User": "0:0",
        "Entrypoint": ["sh"],
        "OpenStdin": False,
        "Labels": {},
        "Env": [],
        "Healthcheck": None,
    }.items():
        seen = account()
        seen["Config"][part] = value
        assert policy.differences(SPEC, seen), part
    for mounts in (
        [],
        [{**account()["Mounts"][0], "RW": True}],
        [*account()["Mounts"], {"Type": "volume", "Destination": "/data"}],
    ):
        assert policy.differences(SPEC, account() | {"Mounts": mounts})


@pytest.mark.parametrize(
    "change",
    [
        {"uid": 0}, {"gid": 0}, {"network": "host"}, {"network": "container:x"}, {"memory": 512 << 20}, {"mounts": ()},
        {"mounts": (Mount("/a", "/workspace", False),)}, {"mounts": (Mount("/a", "/workspace", True), Mount("/b", "/tmp", True))},
        {"mounts": (Mount("/a", "/workspace", True), Mount("/b", "rel", True))},
    ],
)  # fmt: skip
def test_a_spec_that_cannot_hold_is_refused(change):
    with pytest.raises(UsageError):
        policy.create_body(replace(SPEC, **change), "")


def test_gpus_runtime_and_services_go_into_the_request():
    asked = lambda **change: policy.create_body(replace(SPEC, **change), "")["HostConfig"]
    assert asked()["DeviceRequests"] == []
    assert asked(gpus="all")["DeviceRequests"] == [{"Count": -1, "Capabilities": [["gpu"]]}]
    assert asked(gpus="2")["DeviceRequests"] == [{"Count": 2, "Capabilities": [["gpu"]]}]
    assert "Runtime" not in asked() and asked(runtime="runsc")["Runtime"] == "runsc"
    assert asked(services=(Service("db", "x"),))["ExtraHosts"] == ["db:127.0.0.1"]
    assert asked(allow=("h:1",))["NetworkMode"] == "none" and asked(network="full")["NetworkMode"] == "bridge"


def test_a_device_nobody_asked_for_is_a_difference():
    seen = account()
    seen["HostConfig"]["DeviceRequests"] = [{"Count": -1, "Capabilities": [["gpu"]], "Driver": "", "Options": {}}]
    assert policy.differences(SPEC, seen)
    same = {
        **policy.create_body(replace(SPEC, gpus="all"), "")["HostConfig"],
        "DeviceRequests": seen["HostConfig"]["DeviceRequests"],
    }
    seen["HostConfig"] = {**seen["HostConfig"], **same}
    assert policy.differences(replace(SPEC, gpus="all"), seen) == []


def test_full_temporary_file_systems_leave_room():
    least = policy.least_memory(SPEC.tmp_size)
    assert 2 * SPEC.tmp_size < least <= SandboxSpec(Mode.RW, "x", "/", ()).memory
    policy.create_body(replace(SPEC, memory=least), "")


def test_the_environment_is_ours_and_the_specs_only(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "canary")
    env = policy.environment(SPEC)
    assert "canary" not in json.dumps(policy.create_body(SPEC, ""))
    assert env["CI"] == "1"
    assert (env["GIT_EDITOR"], env["PAGER"], env["LANG"]) == ("false", "cat", "C.UTF-8")
    assert [env[f"GIT_CONFIG_VALUE_{i}"] for i in range(int(env["GIT_CONFIG_COUNT"]))] == ["/workspace", "/base"]


def test_facts_from_inside_are_judged_in_both_directions():
    facts = {
        "ids": [1000, 1000],
        "status": {"CapEff": "0", "CapPrm": "0", "CapBnd": "0", "NoNewPrivs": "1", "Seccomp": "2"},
        "interfaces": ["lo"],
        "usable": True,
        "tools": {"bash": "/bin/bash", "git": "/bin/git", "python3": "/bin/python3"},
        "places": policy.expected_places(SPEC),
    }
    assert policy.unproven(SPEC, facts) == []
    assert policy.unproven(SPEC, {})
    status = facts["status"]
    wrong = [
        {"ids": [0, 0]}, {"ids": [1000, 1000, 999]}, {"status": {**status, "CapBnd": "a80425fb"}}, {"status": {**status, "Seccomp": "0"}},
        {"status": {**status, "NoNewPrivs": "0"}}, {"interfaces": ["lo", "eth0"]}, {"usable": False}, {"tools": {"git": ""}},
        *({"places": {**facts["places"], place: answer}} for place, answer in (("/workspace", "yes"), ("/", "yes"), ("/tmp", "ENOSPC"))),
    ]  # fmt: skip
    for change in wrong:
        assert len(policy.unproven(SPEC, facts | change)) == 1, change
    rw = replace(SPEC, mode=Mode.RW, mounts=(Mount("/a", "/workspace", False),))
    assert policy.unproven(rw, facts)


def test_system_calls_are_an_allow_list():
    profile = json.loads(policy.seccomp())
    names = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not names & {
        "io_uring_setup",
        "bpf",
        "mount",
        "unshare",
        "setns",
        "ptrace",
        "keyctl",
        "userfaultfd",
        "perf_event_open",
        "chroot",
    }
    assert {"openat2", "memfd_create", "rseq", "execve", "futex"} <= names


def test_an_image_for_another_processor_is_told():
    arm = {"Architecture": "arm64", "Os": "linux"}
    assert image_problem(arm, {"Arch": "amd64"}) == "is for arm64, and the engine runs on amd64"
    assert image_problem(arm, {"Arch": "arm64"}) == ""
    assert "windows" in image_problem({"Os": "windows"}, {"Arch": "amd64"})
    assert image_problem({"Size": 33 << 30}, {"Arch": "amd64"}) == "has 33.0 GiB, and the most is 32 GiB"


def test_owners_are_told_apart():
    here = Owner.current()
    assert Owner.parse(str(here)) == here
    assert Owner.parse("nonsense") is None
    assert not here.dead(here)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child_owner = replace(here, pid=child.pid, started="1")
    assert child_owner.dead(here)  # another process had this number
    child.wait()
    assert replace(here, pid=child.pid).dead(here)
    assert replace(here, boot="an-earlier-one").dead(here)
    assert not replace(here, machine="another", boot="x", pid=1).dead(here)
    assert not replace(here, space="another", pid=child.pid).dead(here)


def test_the_image_is_named_by_its_recipe():
    assert OWN_IMAGE.endswith(RECIPE)
    text = dockerfile("base:1")
    assert text.startswith("FROM base:1\n")
    assert all(package in text for package in PACKAGES)


def test_execd_is_python_3_9_and_runs_nowhere_but_as_process_1():
    source = policy.execd()
    ast.parse(source, feature_version=(3, 9))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, timeout=20)
    assert (done.returncode, "only as process 1" in done.stderr) == (1, True)
    assert resources.files("agent_harness_sandbox").joinpath("seccomp.json").is_file()


def test_what_podman_is_asked_for_is_what_is_compared_with_its_runtimes_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = replace(SPEC, services=(Service("db", "x"),))
    body = policy.create_body(spec, "sha256:1")
    asked = podman.asked(body)
    assert (asked["user"], asked["stdin"], asked["httpproxy"], asked["cap_drop"]) == ("1000:1000", True, False, ["ALL"])
    assert asked["env"]["CI"] == "1" and asked["netns"]["nsmode"] == "none"
    tmpfs = [{"type": "bind", "source": "/v", "destination": one, "options": [*podman.FLAGS]} for one in policy.TMPFS]
    limits = [{**one, "type": f"RLIMIT_{one['type'].upper()}"} for one in asked["r_limits"]]
    given = {
        "process": {"capabilities": {}, "noNewPrivileges": True, "rlimits": limits},
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "cgroup")],
            "seccomp": json.loads(Path(asked["seccomp_profile_path"]).read_text()),
            "sysctl": {**asked["sysctl"], podman.OWN_SYSCTL: "0 0"},
            "resources": asked["resource_limits"],
            "maskedPaths": sorted(policy.MASKED),
            "readonlyPaths": sorted(policy.READ_ONLY_PATHS),
        },
        "mounts": [*asked["mounts"], *tmpfs],
        "root": {"readonly": asked["read_only_filesystem"]},
    }
    size = f"size={spec.tmp_size}"
    volumes = {
        at: how.replace(size, f"nr_blocks={spec.tmp_size // podman.PAGE}")
        for at, how in body["HostConfig"]["Tmpfs"].items()
    }
    told = podman._told(given, volumes)
    seen = account(spec)
    assert policy.differences(spec, seen | {"HostConfig": seen["HostConfig"] | told}) == []
    for part, key, value in [
        ("process", "capabilities", {"bounding": ["CAP_CHOWN"]}), ("process", "noNewPrivileges", False), ("process", "rlimits", limits[1:]),
        ("linux", "seccomp", None), ("linux", "sysctl", {}), ("linux", "namespaces", given["linux"]["namespaces"][1:]), ("linux", "maskedPaths", []),
        ("linux", "resources", {}), ("root", "readonly", False), ("linux", "devices", [{"path": "/dev/kvm"}]),
    ]:  # fmt: skip
        told = podman._told(given | {part: given[part] | {key: value}}, volumes)
        assert policy.differences(spec, seen | {"HostConfig": seen["HostConfig"] | told}), key
    for mounts in (given["mounts"][1:], given["mounts"][:-1], [*given["mounts"], {**tmpfs[0], "destination": "/host"}]):
        told = podman._told(given | {"mounts": mounts}, volumes)
        assert policy.differences(spec, seen | {"HostConfig": seen["HostConfig"] | told}), mounts
