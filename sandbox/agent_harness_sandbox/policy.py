"""The container profile, pure: what the engine is asked for, and what must be seen before anything runs in it.

Every option is written out, also those whose default would do, so that `differences` can hold the engine's own
account of the container against it: whatever differs, however it came about, keeps the sandbox from starting.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from agent_harness.errors import UsageError
from agent_harness.types import Mode, SandboxSpec, endpoint
from agent_harness_sandbox import relay

SHM = 64 << 20
HEADROOM = 96 << 20
"""Memory that no tmpfs may eat: a full tmpfs must not cost the exec server its life."""
INODE_EVERY, INODE_COST = 8 << 10, 1 << 10
"""One file allowed for so many bytes of a tmpfs, and what the kernel's memory of it may cost."""
FILE_SIZE = 4 << 30
OPEN_FILES = 4096
TMPFS = ("/tmp", "/scratch")  # noqa: S108 (the container's own)
HOME = "/tmp/home"  # noqa: S108
MASKED = frozenset({"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"})
READ_ONLY_PATHS = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})

ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "COLUMNS": "200",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONPYCACHEPREFIX": "/tmp/.pycache",  # noqa: S108
}
"""What every command finds. An editor that is asked for fails at once; nothing is written beside the sources."""

NOTHING = (
    *("PidMode", "UTSMode", "UsernsMode", "CapAdd", "GroupAdd", "Binds", "VolumesFrom"),
    *("Devices", "DeviceCgroupRules", "Links", "PortBindings"),
)
"""Settings of the host's that are asked for as nothing, so that anything there is a difference."""
CAPABILITIES = ("CapEff", "CapPrm", "CapBnd")
NETWORKS = {"none": "none", "full": "bridge"}
WAY = posixpath.dirname(relay.SOCKET)
"""Where the folder with the proxy's socket is, inside."""
LENT = "/run/agent-harness-python"
"""Where the interpreter of an image without Python is, inside: a mount like every other (see lent.py)."""
LENT_PYTHON = (f"{LENT}/loader", "--library-path", f"{LENT}/libraries", f"{LENT}/bin/python3")

# The server's text comes over the stream, so that no path of the host is mounted for it or shows inside.
_BOOT = """import os,sys
n=int(sys.argv[1]);s=b""
while len(s)<n:
 c=os.read(0,n-len(s))
 if not c:sys.exit(3)
 s+=c
exec(compile(s,"execd","exec"))"""


def execd() -> bytes:
    """The exec server's text, sent to process 1 before anything else."""
    return resources.files("agent_harness_sandbox").joinpath("execd.py").read_bytes()


def relay_text() -> bytes:
    """What process 1 runs beside itself where the sandbox has an allow list."""
    return resources.files("agent_harness_sandbox").joinpath("relay.py").read_bytes()


def proxied(allow: Sequence[str], beside: Sequence[str] = ()) -> dict[str, str]:
    """The variables that lead the usual clients to the proxy. The sandbox's own loopback and the services `beside` it
    are not asked of it, unless the list has the host's."""
    there = f"http://127.0.0.1:{relay.PORT}"
    hosts = {endpoint(one)[0] for one in allow}
    own = ",".join(one for one in ("localhost", "127.0.0.1", "::1", *beside) if one not in hosts)
    names = {"HTTP_PROXY": there, "HTTPS_PROXY": there, "ALL_PROXY": there, "NO_PROXY": own}
    return names | {name.lower(): value for name, value in names.items()}


def lends(spec: SandboxSpec) -> bool:
    """Whether the sandbox runs an interpreter that is not its image's."""
    return any(mount.target == LENT for mount in spec.mounts)


def seccomp() -> str:
    """The system calls that are allowed, as compact JSON. Without a list of architectures it is the native one."""
    text = resources.files("agent_harness_sandbox").joinpath("seccomp.json").read_text()
    return json.dumps(json.loads(text), separators=(",", ":"))


def environment(spec: SandboxSpec) -> dict[str, str]:
    """The container's variables besides the image's own; nothing of this process's environment."""
    safe = list(dict.fromkeys(["/workspace", "/base", spec.workdir]))
    env = {**ENVIRONMENT, "GIT_CONFIG_COUNT": str(len(safe))}
    for index, path in enumerate(safe):
        env[f"GIT_CONFIG_KEY_{index}"], env[f"GIT_CONFIG_VALUE_{index}"] = "safe.directory", path
    beside = [service.name for service in spec.services]
    return {**env, **(proxied(spec.allow, beside) if spec.allow else {}), **spec.env}


def create_body(spec: SandboxSpec, image_id: str) -> dict[str, Any]:
    """The engine's create request. Raises UsageError for a spec that no profile can hold for."""
    _check(spec)
    return {
        "Image": image_id,
        "Entrypoint": [*(LENT_PYTHON if lends(spec) else ["python3"]), "-I", "-S", "-c", _BOOT, str(len(execd()))],
        "Cmd": [],
        "User": f"{spec.uid}:{spec.gid}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Env": [f"{name}={value}" for name, value in sorted(environment(spec).items())],
        "Labels": dict(spec.labels),
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,  # the stream breaks when its owner dies; process 1 then ends, and everything with it
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(spec),
    }


def common(network: str, memory: int, cpus: float, pids: int, mounts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What every container of ours has of the host, sandbox or not; no `cpus`: all of them."""
    return {
        "NetworkMode": network,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={seccomp()}"],
        "Mounts": list(mounts),
        "Memory": memory,
        "MemorySwap": memory,
        "CpuPeriod": 100_000,
        "CpuQuota": int(cpus * 100_000),
        "PidsLimit": pids,
    }


def _host_config(spec: SandboxSpec) -> dict[str, Any]:
    # the runtime gives a tmpfs the mode of the image's folder below it, whatever is asked; so it is owned, too
    size = f"size={spec.tmp_size},nr_inodes={spec.tmp_size // INODE_EVERY}"
    tmpfs = f"rw,nosuid,nodev,exec,{size},mode=1777,uid={spec.uid},gid={spec.gid}"
    limits = {"nofile": OPEN_FILES, "core": 0, "fsize": FILE_SIZE}
    mounts = [mount(one.source, one.target, one.read_only) for one in spec.mounts]
    gpus = -1 if spec.gpus == "all" else int(spec.gpus or 0)
    return {
        **dict.fromkeys(NOTHING),
        **common(NETWORKS[spec.network], spec.memory, spec.cpus, spec.pids, mounts),
        "Privileged": False,
        "ReadonlyRootfs": True,
        "Tmpfs": dict.fromkeys(TMPFS, tmpfs),
        "DeviceRequests": [{"Count": gpus, "Capabilities": [["gpu"]]}] if gpus else [],
        "ExtraHosts": [f"{service.name}:127.0.0.1" for service in spec.services],
        "PublishAllPorts": False,
        "OomKillDisable": False,
        "OomScoreAdj": 0,
        "ShmSize": SHM,
        "Sysctls": {"kernel.shm_rmid_forced": "1"},  # memory that no process holds would outlive every sweep
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()],
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "Init": False,
        **({"Runtime": spec.runtime} if spec.runtime else {}),
    }


def mount(source: str, target: str, read_only: bool) -> dict[str, Any]:
    """A structured mount: names with spaces and colons hold. Not recursive: a mount inside the source would stay
    writable in a read-only one on engines before 25."""
    how = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": how}


def least_memory(tmp_size: int) -> int:
    """The memory limit below which full temporary file systems would leave nothing to run in, bytes."""
    return len(TMPFS) * (tmp_size + tmp_size // INODE_EVERY * INODE_COST) + SHM + HEADROOM


def _check(spec: SandboxSpec) -> None:
    ports = [port for service in spec.services for port in service.ports] + [relay.PORT] * bool(spec.allow)
    need, places = least_memory(spec.tmp_size), {mount.target for mount in spec.mounts}
    problems = {
        f"runs as {spec.uid}:{spec.gid}, and root is not allowed inside": spec.uid < 1 or spec.gid < 1,
        f"network {spec.network!r} is neither none nor full": spec.network not in NETWORKS,
        f"an allow list means nothing with network {spec.network}": spec.allow and spec.network != "none",
        "two services have the same port, or one has the proxy's": len(set(ports)) != len(ports),
        f"memory {spec.memory} is less than its temporary file systems could fill ({need})": need > spec.memory,
        "mode ro has a writable mount": spec.mode is Mode.RO and not all(mount.read_only for mount in spec.mounts),
        "a mount covers / or a temporary file system": any(one in {"/", *TMPFS} or one[:1] != "/" for one in places),
        "nothing is mounted at /workspace": "/workspace" not in places,
    }
    if problem := next((what for what, seen in problems.items() if seen), ""):
        raise UsageError(f"the sandbox spec does not hold: {problem}", next="change the [sandbox] settings")


def differences(spec: SandboxSpec, inspect: Mapping[str, Any]) -> list[str]:
    """Where the engine's account of a created container is not the profile; empty when it is. Whatever the account
    leaves out counts as a difference, unless the profile wants it empty."""
    want = create_body(spec, str(inspect.get("Image", "")))
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    found = _compare("HostConfig", want.pop("HostConfig"), host)
    env, labels = set(want.pop("Env")), want.pop("Labels")
    del want["Image"]
    found += _compare("Config", want, config)
    found += [f"Config.Env lacks {line.split('=')[0]}" for line in sorted(env - set(config.get("Env") or []))]
    found += [
        f"Config.Labels lacks {name}" for name in labels if (config.get("Labels") or {}).get(name) != labels[name]
    ]
    seen = {(m.get("Type"), m.get("Source"), m.get("Destination"), m.get("RW")) for m in inspect.get("Mounts") or []}
    wanted = {("bind", mount.source, mount.target, not mount.read_only) for mount in spec.mounts}
    found += [f"Mounts has {kind} at {target} that was not asked for" for kind, _, target, _ in seen - wanted]
    found += [f"Mounts lacks {target} as asked for" for _, _, target, _ in wanted - seen]
    for key, needed in (("MaskedPaths", MASKED), ("ReadonlyPaths", READ_ONLY_PATHS)):
        found += [f"HostConfig.{key} lacks {path}" for path in sorted(needed - set(host.get(key) or []))]
    return sorted(found)


def _compare(where: str, want: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    """Keys whose value differs; every kind of nothing is the same nothing, and order in lists does not count."""
    found = []
    for key, value in want.items():
        other = seen.get(key)
        if (value or other) and _plain(value) != _plain(other):
            found.append(f"{where}.{key} is {_short(other)}, not {_short(value)}")
    return found


def _plain(value: Any) -> Any:
    """Comparable: what is empty left out, lists of objects sorted."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner}
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return sorted(json.dumps(_plain(item), sort_keys=True) for item in value)
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def unproven(spec: SandboxSpec, facts: Mapping[str, Any]) -> list[str]:
    """What the started sandbox, asked from inside, does not have; empty when it holds in both directions."""
    status, places, ids, links = (facts.get(name) or {} for name in ("status", "places", "ids", "interfaces"))
    tools = facts.get("tools", {"bash": ""})
    holds = {
        **{f"the image has no {name}; it needs bash and git": path for name, path in tools.items()},
        f"it runs as {ids}, not {spec.uid}:{spec.gid}": set(ids) == {spec.uid, spec.gid},
        f"it has capabilities: {status}": not any(int(status.get(name) or "1", 16) for name in CAPABILITIES),
        "no-new-privileges is not set": status.get("NoNewPrivs") == "1",
        "no seccomp filter is loaded": status.get("Seccomp") == "2",
        f"it has network interfaces {links}": spec.network != "none" or links == ["lo"],
        f"uid {spec.uid} cannot list /workspace; give its folder to that user": facts.get("usable"),
    }
    for place, wanted in expected_places(spec).items():
        holds[f"writing {place} gives {places.get(place)}, not {wanted}"] = places.get(place) == wanted
    return [what for what, held in holds.items() if not held]


def expected_places(spec: SandboxSpec) -> dict[str, str]:
    """What a try to write must give, by place: `yes`, or the kernel's refusal of a read-only mount."""
    expected = {"/": "EROFS", "/etc": "EROFS", **dict.fromkeys(TMPFS, "yes")}
    return expected | {mount.target: "EROFS" if mount.read_only else "yes" for mount in spec.mounts}
