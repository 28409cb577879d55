"""Sandboxes started ahead of need. Mounts are fixed when a container is made, so each waits on an empty folder of its
own; a workspace is then laid out in that folder, which keeps its identity when it is renamed to its place.

Only what is the same for every run is started ahead: writable, nothing mounted but the workspace, nothing around. The
labels of the run are the one thing that such a container lacks; the owner's is there, and the log names its id."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent_harness.errors import HarnessError
from agent_harness.ports import Sandbox
from agent_harness.types import Command, Mode, Mount, SandboxSpec

WORKSPACE = "/workspace"
JOIN_S = 60.0


class Spare(Sandbox, Protocol):
    """A sandbox that can be asked to prove itself once more."""

    def prove(self) -> None:
        """Raises where it is not what it must be."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    sandbox: Spare
    shape: SandboxSpec
    folder: Path
    inode: tuple[int, int]


class Pool:
    """Keeps up to `size` started sandboxes of the shape that was last asked for."""

    def __init__(self, start: Callable[[SandboxSpec], Spare], size: int, folder: Path) -> None:
        self._start, self._size, self._folder = start, size, folder
        self._lock = threading.Lock()
        self._shape: SandboxSpec | None = None
        self._waiting: list[_Waiting] = []
        self._given: dict[tuple[int, int], tuple[_Waiting, Path]] = {}
        self._filler: threading.Thread | None = None
        self._closed = False
        atexit.register(self.close)

    def room(self, dest: Path) -> None:
        """Put the empty folder of a waiting sandbox at `dest`, where there is one."""
        with self._lock:
            if not self._waiting:
                return
            spare = self._waiting.pop(0)
            self._given[spare.inode] = spare, dest
        try:
            spare.folder.rename(dest)
        except OSError:  # another file system: it cannot be used from here
            self._discard(spare)

    def take(self, spec: SandboxSpec) -> Spare | None:
        """The sandbox that waits on this spec's workspace, proved anew; None where a start is needed."""
        place = next(Path(mount.source).stat() for mount in spec.mounts if mount.target == WORKSPACE)
        shape = _shape(spec)
        with self._lock:
            self._shape = shape or self._shape
            spare, _ = self._given.pop((place.st_dev, place.st_ino), (None, None))
        self._fill()
        if spare is None:
            return None
        try:
            if spare.shape == shape:
                spare.sandbox.prove()
                seen = spare.sandbox.execute(Command("stat -c %i .", timeout_s=10, workdir=WORKSPACE))
                if seen.ok and seen.head.strip() == str(place.st_ino).encode():
                    return spare.sandbox
        except HarnessError:
            pass  # it died while it waited
        self._discard(spare)
        return None

    def close(self) -> None:
        """Let go of everything that waits."""
        self._closed = True
        if self._filler is not None:
            self._filler.join(JOIN_S)
        with self._lock:
            given = [spare for spare, _ in self._given.values()]
            rest, self._waiting, self._given = [*self._waiting, *given], [], {}
        for spare in rest:
            self._discard(spare)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.close)

    def _discard(self, spare: _Waiting) -> None:
        with self._lock:
            self._given.pop(spare.inode, None)
        with contextlib.suppress(HarnessError):
            spare.sandbox.close()

    def _fill(self) -> None:
        with self._lock:
            if self._closed or (self._filler is not None and self._filler.is_alive()):
                return
            self._filler = threading.Thread(target=self._work, name="sandbox-pool", daemon=True)
            self._filler.start()

    def _work(self) -> None:
        """Start what is missing; a start that fails ends the trying, and the next real one says why."""
        while not self._closed:
            with self._lock:
                shape = self._shape
                stale = [one for one in self._waiting if one.shape != shape]
                stale += [spare for spare, dest in self._given.values() if not dest.exists()]  # never used
                self._waiting = [one for one in self._waiting if one.shape == shape]
                enough = len(self._waiting) >= self._size
            for spare in stale:
                self._discard(spare)
            if enough or shape is None:
                return
            try:
                spare = self._one(shape)
            except (HarnessError, OSError):
                return
            with self._lock:
                self._waiting.append(spare)

    def _one(self, shape: SandboxSpec) -> _Waiting:
        folder = self._folder / os.urandom(8).hex()
        folder.mkdir(parents=True, mode=0o755)
        if os.geteuid() == 0:
            os.chown(folder, shape.uid, shape.gid)
        found = folder.stat()
        sandbox = self._start(replace(shape, mounts=(Mount(str(folder), WORKSPACE, read_only=False),)))
        return _Waiting(sandbox, shape, folder, (found.st_dev, found.st_ino))


def _shape(spec: SandboxSpec) -> SandboxSpec | None:
    """A spec without what differs from run to run; None where it cannot be started ahead."""
    alone = len(spec.mounts) == 1 and spec.mounts[0].target == WORKSPACE and spec.mode is Mode.RW
    if not alone or spec.services or spec.allow:
        return None
    return replace(spec, labels={}, mounts=())
