"""Podman's socket, spoken to in Docker's terms.

Its imitation of Docker's API loses part of a profile: the seccomp text, the sysctl, the private IPC namespace, what a
tmpfs may hold. So containers are made through podman's own API, which takes all of it, and what is compared is the
configuration that podman wrote for its runtime, not what it says of itself. Both need the service on this machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_harness_sandbox import policy
from agent_harness_sandbox.image import cache

SIGN = "Libpod-API-Version"
"""The header by which it is told from Docker."""
PAGE = resource.getpagesize()
FLAGS = ("rw", "nosuid", "nodev", "exec")
OWN = frozenset({"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/run/.containerenv"})
"""Files that podman itself shows inside, read-only."""
SAME = (
    *(("image", "Image"), ("user", "User"), ("work_dir", "WorkingDir"), ("hostname", "Hostname"), ("labels", "Labels")),
    *(("entrypoint", "Entrypoint"), ("command", "Cmd"), ("stdin", "OpenStdin"), ("healthconfig", "Healthcheck")),
)
"""What is merely named otherwise: podman's word, Docker's."""
OWN_SYSCTL = "net.ipv4.ping_group_range"
"""Which podman sets beside ours; it opens pings to root's group in a namespace that leads nowhere."""


class Podman:
    """docker-py's API client, but for the calls that podman has to be asked otherwise."""

    def __init__(self, api: Any) -> None:
        self._api, self._own = api, f"{api.base_url}/v4.0.0/libpod"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def _ask(self, method: str, path: str, data: Any = None) -> Any:
        answer = self._api.request(method, self._own + path, json=data, timeout=60)
        return self._api._result(answer, json=True)  # noqa: SLF001 - docker-py's own reading of an error

    def create_container_from_config(self, body: Mapping[str, Any], name: str) -> Any:
        """Made by podman's own API. Its tmpfs takes no limit of inodes and no owner; a volume of that type does."""
        tmpfs = body["HostConfig"].get("Tmpfs") or {}
        for target, options in tmpfs.items():
            blocks = re.sub(r"size=(\d+)", lambda found: f"nr_blocks={int(found[1]) // PAGE}", options)
            about = {"type": "tmpfs", "device": "tmpfs", "o": blocks}  # `size` would mean a quota
            self._ask("POST", "/volumes/create", {"Name": _volume(name, target), "Options": about})
        volumes = [{"Name": _volume(name, one), "Dest": one, "Options": [*FLAGS, "nocopy"]} for one in tmpfs]
        return self._ask("POST", "/containers/create", {**asked(body), "name": name, "volumes": volumes})

    def remove_container(self, name: str, **_how: Any) -> None:
        """At once, not after ten seconds' grace, and with the volumes that were its temporary file systems."""
        try:
            self._ask("DELETE", f"/containers/{name}?force=true&v=true&timeout=0")
        finally:
            for target in policy.TMPFS:
                self._api.delete(f"{self._own}/volumes/{_volume(name, target)}", timeout=60)

    def account(self, name: str) -> dict[str, Any]:
        """What the runtime was told to make of a container, as Docker would say it. It is written at the attach."""
        found, own = self._api.inspect_container(name), self._ask("GET", f"/containers/{name}/json")
        given = json.loads(Path(own["OCIConfigPath"]).read_text())
        volumes = {one["Destination"]: one["Name"] for one in own["Mounts"] if one["Type"] == "volume"}
        made = {at: self._ask("GET", f"/volumes/{one}/json")["Options"].get("o", "") for at, one in volumes.items()}
        # said of a request alone, and what podman always does: the stream of a container ends with its one reader
        found["Config"] |= dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce"), True)
        found["Config"]["Healthcheck"] = {"Test": (found["Config"].get("Healthcheck") or {}).get("Test")}
        found["HostConfig"] |= {**_told(given, made), "Runtime": own["OCIRuntime"]}
        found["Mounts"] = [
            {"Type": "bind", "Source": one["Source"], "Destination": one["Target"], "RW": not one["ReadOnly"]}
            for one in found["HostConfig"]["Mounts"]
        ]
        return dict(found)


def asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """A create request of Docker's as podman's own."""
    host = body["HostConfig"]
    network, _, other = host["NetworkMode"].partition(":")
    hosts = [("localhost", "127.0.0.1"), ("localhost", "::1"), (body.get("Hostname", "localhost"), "127.0.0.1")]
    hosts += [one.split(":", 1) for one in host.get("ExtraHosts") or ()]
    table = _file("hosts", "".join(f"{address}\t{name}\n" for name, address in hosts))  # podman's shows the host's own
    # what podman takes where nothing is asked may be more than it may give
    limits = {"nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1]}
    threads, most = resource.getrlimit(resource.RLIMIT_NPROC)[1], int(Path("/proc/sys/kernel/pid_max").read_text())
    limits["nproc"] = most if threads == resource.RLIM_INFINITY else min(threads, most)
    limits |= {one["Name"]: one["Hard"] for one in host.get("Ulimits") or ()}
    return {
        **{own: body[dockers] for own, dockers in SAME if dockers in body},
        "env": dict(line.split("=", 1) for line in body["Env"]),
        "httpproxy": False,  # the service's own variables would go inside
        "systemd": "false",
        "manage_password": False,  # a table of users that podman would show for one that the image does not know
        "image_volume_mode": "ignore",
        "restart_policy": "no",
        "cap_drop": host["CapDrop"],
        "cap_add": host.get("CapAdd") or [],
        "no_new_privileges": True,
        "seccomp_profile_path": _file("seccomp", policy.seccomp()),
        "read_only_filesystem": host.get("ReadonlyRootfs", False),
        "mounts": [*map(_mount, [*host["Mounts"], policy.mount(table, "/etc/hosts", read_only=True)])],
        "netns": {"nsmode": network, "value": other},
        **{key: {"nsmode": "private"} for key in ("ipcns", "cgroupns", "pidns", "utsns")},
        "resource_limits": {
            "memory": {"limit": host["Memory"], "swap": host["MemorySwap"]},
            "cpu": {"period": host["CpuPeriod"], "quota": host["CpuQuota"]} if host["CpuQuota"] else {},
            "pids": {"limit": host["PidsLimit"]},
        },
        "r_limits": [{"type": name, "soft": value, "hard": value} for name, value in limits.items()],
        "sysctl": host.get("Sysctls") or {},
        "shm_size": host.get("ShmSize", policy.SHM),
        "log_configuration": {"driver": host["LogConfig"]["Type"], "size": 4 << 20},
        **({"oci_runtime": host["Runtime"]} if host.get("Runtime") else {}),
    }


def _told(given: Mapping[str, Any], volumes: Mapping[str, str]) -> dict[str, Any]:
    """The settings that the runtime's configuration holds, in Docker's words. `volumes` have their options by place."""
    linux, process = given["linux"], given["process"]
    spaces = {one["type"]: one.get("path", "") or "private" for one in linux["namespaces"]}
    held = {name for names in (process.get("capabilities") or {}).values() for name in names or ()}
    same = linux.get("seccomp") == json.loads(policy.seccomp())
    memory, cpu, pids = ((linux.get("resources") or {}).get(name) or {} for name in ("memory", "cpu", "pids"))
    told: dict[str, Any] = {"Mounts": [], "Tmpfs": {}, "Binds": [], "ExtraHosts": []}
    for one in given["mounts"]:
        target, options = one["destination"], one["options"]
        if target in volumes or (one["type"] == "tmpfs" and target != "/dev"):
            made = volumes.get(target, "") if set(FLAGS) <= set(options) else ",".join(options)
            told["Tmpfs"][target] = re.sub(r"nr_blocks=(\d+)", lambda found: f"size={int(found[1]) * PAGE}", made)
        elif one["type"] == "bind" and target == "/etc/hosts" and "ro" in options:
            rows = [line.split() for line in Path(one["source"]).read_text().splitlines()[3:]]
            told["ExtraHosts"] = [f"{name}:{address}" for address, name, *_ in rows]
        elif one["type"] == "bind" and target != "/dev/shm" and not (target in OWN and "ro" in options):  # noqa: S108
            how = {"Propagation": "rprivate" * ("rprivate" in options), "NonRecursive": "rbind" not in options}
            told["Mounts"].append({**policy.mount(one["source"], target, "ro" in options), "BindOptions": how})
    return told | {
        "PidMode": "" if spaces.get("pid") == "private" else spaces.get("pid", "host"),
        "UTSMode": "" if spaces.get("uts") == "private" else spaces.get("uts", "host"),
        "IpcMode": spaces.get("ipc", "host"),
        "CgroupnsMode": spaces.get("cgroup", "host"),
        "Memory": memory.get("limit"),
        "MemorySwap": memory.get("swap"),
        "CpuPeriod": cpu.get("period"),
        "CpuQuota": cpu.get("quota"),
        "PidsLimit": pids.get("limit"),
        "Devices": linux.get("devices") or [],
        "ReadonlyRootfs": given["root"].get("readonly", False),
        "CapDrop": [] if held else ["ALL"],
        "CapAdd": sorted(held),
        "SecurityOpt": [
            f"no-new-privileges:{str(process.get('noNewPrivileges')).lower()}",
            f"seccomp={policy.seccomp() if same else 'another'}",
        ],
        "MaskedPaths": linux.get("maskedPaths"),
        "ReadonlyPaths": linux.get("readonlyPaths"),
        "Sysctls": {key: value for key, value in (linux.get("sysctl") or {}).items() if key != OWN_SYSCTL},
        "Ulimits": [
            {"Name": one["type"].removeprefix("RLIMIT_").lower(), "Soft": one["soft"], "Hard": one["hard"]}
            for one in process["rlimits"]
            if one["type"] != "RLIMIT_NPROC"
        ],
    }


def _mount(one: Mapping[str, Any]) -> dict[str, Any]:
    if one["Type"] == "tmpfs":
        options = [*("rw", "nosuid", "nodev", "mode=1777"), f"size={one['TmpfsOptions']['SizeBytes']}"]
    else:
        options = ["bind", one["BindOptions"]["Propagation"], "ro" if one["ReadOnly"] else "rw"]
    return {"type": one["Type"], "source": one.get("Source", "tmpfs"), "destination": one["Target"], "options": options}


def _volume(container: str, target: str) -> str:
    return container + target.replace("/", "-")


def _file(name: str, text: str) -> str:
    """A file of the user's cache with this text, for the service to read."""
    path = cache() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        beside.write_text(text)
        beside.chmod(0o644)
        beside.rename(path)
    return str(path)
