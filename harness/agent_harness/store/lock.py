"""One writer at a time, over all processes of this machine.

SQLite's own lock is waited for by sleeping ever longer, which starves some workers for seconds. This one is asked
for in short even steps, and the kernel frees it when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent_harness.errors import StoreFault
from agent_harness.store.faults import os_fault

_STEP_S = 0.002


@contextmanager
def file_lock(path: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock. Raises StoreFault when it is not free within `wait_s` seconds.

    A blocking `flock` cannot be given up: a stopped holder would stop everybody, heartbeats included.
    """
    deadline = time.monotonic() + wait_s
    try:
        # Opened anew each time: an open file that crosses a fork would share its lock with the child.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise os_fault(str(path), error) from error
    try:
        while not _taken(handle):
            if time.monotonic() >= deadline:
                raise StoreFault(
                    f"the store could not be written for {wait_s:.0f} s",
                    why=f"another process holds {path}",
                    next=f"see which with `fuser {path}`: a stopped one must be continued or ended",
                )
            time.sleep(_STEP_S * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the waiters, guards nothing
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _taken(handle: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
