"""Whose container this is: a process, told from every other that ever had its number."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

LABEL = "agent-harness.owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of one boot of one machine. `space` is its pid namespace: in another, its number means nothing."""

    machine: str
    boot: str
    space: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        machine = _text("/etc/machine-id") or socket.gethostname()
        space = str(Path("/proc/self/ns/pid").stat().st_ino)
        boot = _text("/proc/sys/kernel/random/boot_id") or "-"
        return cls(hashlib.sha256(machine.encode()).hexdigest()[:12], boot, space, os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """From a label; None when it is not one of ours."""
        parts = text.split("/")
        if len(parts) != 5 or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])

    def __str__(self) -> str:
        return f"{self.machine}/{self.boot}/{self.space}/{self.pid}/{self.started}"

    def dead(self, here: Owner) -> bool:
        """Known to be gone. Not known, another host or another pid namespace: not dead."""
        if self.machine != here.machine:
            return False
        if self.boot != here.boot:
            return True
        return self.space == here.space and _started(self.pid) != self.started


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; empty when there is none, or it is only waiting to be reaped."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return "" if not fields or fields[0] in {"Z", "X"} else fields[19]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
