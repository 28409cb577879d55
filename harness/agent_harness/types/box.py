"""Sandboxes and the commands run in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    """Path inside the sandbox of the whole (capped) output when it was cut, else empty."""

    @property
    def cut_bytes(self) -> int:
        """Bytes of output that are in neither head nor tail."""
        return self.total_bytes - len(self.head) - len(self.tail)

    @property
    def ok(self) -> bool:
        """The command ended by itself with exit code 0."""
        return self.end is CommandEnd.EXITED and self.exit_code == 0
