"""Work trees laid out ahead of need, so that the next one on the same base is a few renames away.

A spare stands in a private folder (0700) inside the harness's own repository, which no sandbox has ever seen, and only
a finished one gets its name: what bears the name is what the harness wrote, and is not read again before use. The name
holds the id of the machine's boot, since nothing is flushed to the disk and a power cut may leave files without their
bytes. Who makes, takes or removes one holds a kernel lock on it: what a killed process leaves, anybody may remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import struct
import tempfile
import threading
import uuid
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path

from agent_harness.errors import HarnessError
from agent_harness.workspace.checkout import Checkout, Place
from agent_harness.workspace.folders import boot, closing, locked, opened

_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x20000
_NEW = "new-"
_FREE = 10
"""No spare is made where less than this part of the disk is free."""


def spread(folder: Path) -> None:
    """Ask ext4 to put each new folder of this one elsewhere on the disk. Near a tree that was removed within the last
    minutes, a file takes 40 times as long to make: its freed inodes are looked at, and passed over, for each file.
    Other file systems do not know the flag, nor need it."""
    with contextlib.suppress(OSError), closing(opened(folder)) as fd:
        (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _TOP_FOLDER))


class Spares:
    """At most one finished spare: of the base and owner that were asked for last."""

    def __init__(self, folder: Path, write: Callable[[str, Place], Checkout]) -> None:
        """`write` lays out a commit with git."""
        self._folder, self._write = folder, write
        self._stop, self._maker, self._one = threading.Event(), threading.Thread(), threading.RLock()

    def take(self, commit: str, place: Place) -> Checkout | None:
        """Fill the new folder `place.dest` with the spare of a commit; None where there is none to be had."""
        name = self._name(commit, place)
        if self._maker.name == name.name:
            self._maker.join()  # done sooner than another that would start now
        mine = self._folder / f"{_NEW}{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError, BlockingIOError), locked(name) as spare:
            place.fresh()
            if spare.stat().st_dev != place.dest.stat().st_dev:
                return None
            try:
                spare.rename(mine)
                files, modules, pointers = json.loads((mine / "facts").read_text())
                for child in (mine / "tree").iterdir():
                    child.rename(place.dest / child.name)
                return Checkout(files, tuple(modules), tuple(pointers))
            finally:
                shutil.rmtree(mine, ignore_errors=True)
        return None

    def start(self, commit: str, place: Place) -> None:
        """Make a spare in the background, if there is none. `place` says whose; its folder does not count."""
        name = self._name(commit, place)
        maker = threading.Thread(target=self._make, args=(commit, place, name), name=name.name, daemon=True)
        with self._one:
            self.stop()
            maker.start()
            self._maker = maker  # not before it runs: a work tree laid at the same time may wait for it

    def stop(self) -> None:
        """Give up what is being made."""
        with self._one:
            self._stop.set()
            if self._maker.is_alive():
                self._maker.join()
            self._stop.clear()

    def sweep(self, keep: str = "*-*-*-*") -> None:
        """Remove what killed processes left, and finished spares whose name is another than `keep` (a pattern)."""
        for left in self._folder.glob("*"):
            with contextlib.suppress(OSError):
                if left.name.startswith(_NEW) or not left.match(keep):
                    with locked(left):
                        shutil.rmtree(left, ignore_errors=True)

    def _make(self, commit: str, place: Place, name: Path) -> None:
        with contextlib.suppress(OSError, HarnessError):  # no spare, then: the next work tree takes its time
            self._folder.mkdir(mode=0o700, exist_ok=True)
            spread(self._folder)
            self.sweep(name.name)
            disk = shutil.disk_usage(self._folder)
            if name.exists() or disk.free * _FREE < disk.total:
                return
            with tempfile.TemporaryDirectory(prefix=_NEW, dir=self._folder) as top, locked(Path(top)) as new:
                facts = self._write(commit, replace(place, dest=new / "tree", stopped=self._stop.is_set))
                (new / "facts").write_text(json.dumps(astuple(facts)))
                new.rename(name)

    def _name(self, commit: str, place: Place) -> Path:
        return self._folder / f"{commit}-{place.uid}-{place.gid}-{boot()}"
