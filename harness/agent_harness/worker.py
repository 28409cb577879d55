"""Who works: a name for one worker of one process, from which its death can be seen.

The text is `host/boot_id/pid/start_time/uuid`. `host` carries the pid namespace, since a pid means something only
inside one; `start_time` tells a process from a later one with the same pid.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

_PROC = Path("/proc")


def this_worker() -> str:
    """A name for a new worker of this process; two calls never give the same."""
    host, boot = _here()
    pid = os.getpid()
    return f"{host}/{boot}/{pid}/{_start_time(pid) or 0}/{uuid.uuid4().hex}"


def alive(worker: str) -> bool | None:
    """Whether the worker's process still runs; None where that cannot be told from here.

    None is the answer for another host, another boot, another pid namespace or text of another form: only the
    claim's expiry counts for those. (Two machines can have one name, so another boot is not proof of death.)
    """
    parts = worker.split("/")
    if len(parts) != 5 or tuple(parts[:2]) != _here() or not parts[1]:
        return None
    if not (parts[2].isdigit() and parts[3].isdigit()):
        return None
    return _start_time(int(parts[2])) == int(parts[3])


def _here() -> tuple[str, str]:
    try:
        namespace = (_PROC / "self/ns/pid").stat().st_ino
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname(), ""
    return f"{socket.gethostname()}:{namespace}", boot


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None when it is gone or only its exit code is left."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return None if state in {"Z", "X"} else int(fields[18])
