"""Folders of the host that are open, and those that nobody else has."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def boot() -> str:
    """The id of the machine's boot: what was not flushed to the disk is whole as long as it stays the same."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")


@contextmanager
def closing(fd: int) -> Generator[int]:
    """A descriptor, closed at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def opened(folder: Path, more: int = 0) -> int:
    """A folder's descriptor."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | more)


@contextmanager
def locked(folder: Path) -> Generator[Path]:
    """A folder that nobody else makes, takes or removes while the block runs. Raises OSError where one does."""
    with closing(opened(folder)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), folder.stat()):
            raise FileNotFoundError(errno.ENOENT, "it was taken, and there is another now", str(folder))
        yield folder
