"""Sandboxes and the commands run in them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """`rw` may change the workspace; in `ro` the kernel refuses every write to it."""

    RW = "rw"
    RO = "ro"


@dataclass(frozen=True, slots=True)
class Mount:
    """A host directory shown inside at `target`."""

    source: str
    target: str
    read_only: bool


def endpoint(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[address]:port`, in one spelling. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.lower().removesuffix(".")
    if host[:1] == "[" and host[-1:] == "]":
        host = str(ipaddress.IPv6Address(host[1:-1]))
    elif not re.fullmatch(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9])?", host):
        raise ValueError(f"{text[:80]!r} is not HOST:PORT")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        raise ValueError(f"{text[:80]!r} has no port from 1 to 65535")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class Service:
    """A server beside a sandbox, on its loopback alone. `command` replaces the image's where it is not empty;
    `health` is a shell command inside the service; without one, each of `ports` has to accept a connection."""

    name: str
    image: str
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    health: str = ""
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """How a sandbox's image is made from what the base commit holds. `tree` is a checkout of it on the host; the
    image is `reference`, or built from `dockerfile` or `devcontainer` (paths in the tree). Then `setup` is run once
    and kept, named by the digest of all that went in. Nothing of a candidate ever does."""

    tree: str
    reference: str = ""
    fetch: bool = False
    """Pull the reference first where it is missing: only by a person's wish, never in a run."""
    dockerfile: str = ""
    devcontainer: str = ""
    devcontainer_env: tuple[str, ...] = ()
    """Names of a devcontainer's variables that are taken over."""
    setup: tuple[str, ...] = ()
    setup_files: tuple[str, ...] = ()
    """Paths in the tree whose contents the set-up depends on; all of the tree where there is none."""
    network: str = "none"
    allow: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the set-up alone."""
    caches: tuple[Mount, ...] = ()
    user: tuple[int, int] = (1000, 1000)
    """Who owns what the set-up leaves in the caches."""
    timeout_s: float = 1800.0
    project: str = ""
    """Whose image it is: of each project's, a few are kept."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox is started from. Sizes in bytes. `mounts` are made by the harness, never by a repository."""

    mode: Mode
    image: str
    workdir: str
    mounts: tuple[Mount, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    memory: int = 2 << 30
    cpus: float = 2.0
    pids: int = 512
    tmp_size: int = 512 << 20
    network: str = "none"
    """`none`, or `full`: all that the engine's default network reaches, the host's ports and local networks too."""
    allow: tuple[str, ...] = ()
    """With network `none`: the `host:port` pairs that a proxy of ours lets through."""
    denied: Callable[[dict[str, Any]], None] | None = field(default=None, compare=False)
    """Told of each refusal of that proxy (host, port, why, count) by the thread that runs the commands."""
    gpus: str = ""
    """`all`, a number, or nothing."""
    services: tuple[Service, ...] = ()
    runtime: str | None = None
    uid: int = 1000
    gid: int = 1000


@dataclass(frozen=True, slots=True)
class Command:
    """A `bash -c` script. `timeout_s` is the total deadline, `idle_s` (0: none) the longest silence."""

    script: str
    timeout_s: float
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    idle_s: float = 0.0
    keep: int = 64 << 10
    """Bytes of output brought back (head and tail); the rest is counted, and kept in a file inside."""
    save: int | None = None
    """Outputs longer than this are kept in a file too; those that are cut always are."""


class CommandEnd(StrEnum):
    """How a command ended. Only EXITED has an exit code that is the command's own."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    IDLE = "idle"
    OUT_OF_MEMORY = "out_of_memory"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did. stdout and stderr are one stream in order of arrival, as bytes."""

    end: CommandEnd
    exit_code: int
    head: bytes
    tail: bytes
    total_bytes: int
    seconds: float
    saved_to: str = ""
    """Path inside the sandbox of the whole (capped) output when it was cut or past `save`, else empty."""

    @property
    def cut_bytes(self) -> int:
        """Bytes of output that are in neither head nor tail."""
        return self.total_bytes - len(self.head) - len(self.tail)

    @property
    def ok(self) -> bool:
        """The command ended by itself with exit code 0."""
        return self.end is CommandEnd.EXITED and self.exit_code == 0
