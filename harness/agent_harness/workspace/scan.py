"""Reads a work tree that somebody else wrote, without following a link and without git.

Every file is opened relative to its folder's descriptor, is checked on the descriptor that is then read, and its
object id is computed from the very bytes that are kept. So neither a planted attribute, filter or `.gitignore` nor a
writer that swaps files meanwhile changes what a tree says is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_harness.types import Refusal
from agent_harness.workspace.entries import FILE, GITLINK, LINK, PROGRAM, Entry, folders, means_git, shown, too_long
from agent_harness.workspace.folders import closing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20
KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """Ceilings of a capture: new or changed files, bytes of one of them, bytes of all of them, names looked at."""

    files: int = 10_000
    file_bytes: int = 32 << 20
    total_bytes: int = 256 << 20
    names: int = 2_000_000


class _Refused(Exception):
    """This path can be no part of a candidate; the text says why."""


@dataclass
class Scan:
    """One reading of a work tree; `run` fills `entries`, `refusals` and `ignored`.

    `base` is the tree it grew from, `drop` says which untracked files and folders are ignored, and `keep` takes the
    bytes of each object that the base does not have."""

    base: Mapping[bytes, Entry]
    drop: Callable[[list[bytes], list[bytes]], set[bytes]]
    keep: Callable[[bytes], None]
    limits: CaptureLimits
    entries: dict[bytes, Entry] = field(default_factory=dict)
    links: dict[bytes, bytes] = field(default_factory=dict)
    """Where each link of `entries` points."""
    refusals: list[Refusal] = field(default_factory=list)
    ignored: list[bytes] = field(default_factory=list)

    def run(self, top: int) -> None:
        """Read everything below the folder that the descriptor `top` is open on."""
        self._top, self._device = top, os.fstat(top).st_dev
        self._ids = {entry.oid for entry in self.base.values()}
        self._folders = folders(self.base)
        self._names = self._files = self._bytes = 0
        level = [b""]
        while level:
            files: dict[bytes, list[bytes]] = {}
            below: list[bytes] = []
            for folder in level:
                files[folder] = self._list(folder, below)
            new = [path for paths in files.values() for path in paths if path not in self.base]
            dropped = self.drop(new, [path for path in below if path not in self._folders])
            self.ignored += sorted(dropped)
            for folder, paths in files.items():
                self._take_all(folder, [path for path in paths if path not in dropped])
            level = [path for path in below if path not in dropped]

    def refuse(self, path: bytes, reason: str) -> None:
        """Note why a path is left out."""
        if len(self.refusals) < _SHOWN:
            self.refusals.append(Refusal(shown(path), reason))
        elif len(self.refusals) == _SHOWN:
            self.refusals.append(Refusal("…", f"more than {_SHOWN} refusals; the rest is not listed"))

    def _list(self, folder: bytes, below: list[bytes]) -> list[bytes]:
        """The paths in a folder that are no folders; those that are go to `below`."""
        found = []
        with self._at(folder) as fd:
            if fd is None:
                return []
            for path, is_folder in self._named(folder, fd):
                tracked = self.base.get(path)
                if not is_folder:
                    found.append(path)
                elif tracked and tracked.mode == GITLINK:
                    self._submodule(tracked, fd)
                else:
                    below.append(path)
        return found

    def _named(self, folder: bytes, fd: int) -> Iterator[tuple[bytes, bool]]:
        with os.scandir(fd) as listing:
            for item in listing:
                name = os.fsencode(item.name)
                path = folder + b"/" + name if folder else name
                self._names += 1
                if self._names > self.limits.names:
                    self.refuse(
                        folder or b".", f"more than {self.limits.names} names in the tree; the rest is left out"
                    )
                    return
                if path == b".git":
                    continue
                if means_git(name):
                    self.refuse(path, "a nested git repository, or a name that some systems take for one")
                elif why := too_long(path):
                    self.refuse(path[:80] + b"...", why)
                else:
                    yield path, item.is_dir(follow_symlinks=False)

    def _submodule(self, entry: Entry, parent: int) -> None:
        self.entries[entry.path] = entry
        with closing(_open(entry.path.rpartition(b"/")[2], _FOLDER, parent)) as fd, os.scandir(fd) as inside:
            if any(inside):
                self.refuse(entry.path, "files inside a submodule; it must stay the empty folder it was")

    def _take_all(self, folder: bytes, paths: list[bytes]) -> None:
        with self._at(folder if paths else b"") as fd:
            for path in paths if fd is not None else ():
                with self._refusing(path):
                    self._take(path, fd or 0)

    @contextlib.contextmanager
    def _refusing(self, path: bytes) -> Iterator[None]:
        """What cannot be had is left out: in silence where it is gone, else it is said."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            pass
        except _Refused as refused:
            self.refuse(path, str(refused))
        except OSError as error:
            self.refuse(path, f"it cannot be read: {error.strerror}")

    def _take(self, path: bytes, parent: int) -> None:
        name = path.rpartition(b"/")[2]
        kind = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            self.links[path] = target
            self._enter(path, LINK, _blob_id(len(target), [target]), len(target), target)
            return
        if not stat.S_ISREG(kind):
            raise _Refused(f"{KINDS.get(stat.S_IFMT(kind), 'something else')}, not a file")
        with closing(_open(name, _READ, parent)) as fd:
            self._read(path, fd)

    def _read(self, path: bytes, fd: int) -> None:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            raise _Refused("it changed while it was read")
        if seen.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise _Refused("it has the setuid or setgid bit")
        self._on_device(fd)
        mode = PROGRAM if seen.st_mode & stat.S_IXUSR else FILE
        tracked = self.base.get(path)
        if seen.st_size <= self.limits.file_bytes:
            data = b"".join(_chunks(fd, seen.st_size))
            self._enter(path, mode, _blob_id(len(data), [data]), len(data), data)
        elif (
            tracked
            and tracked.size == seen.st_size
            and _blob_id(seen.st_size, _chunks(fd, seen.st_size)) == tracked.oid
        ):
            self._enter(path, mode, tracked.oid, tracked.size, None)
        else:
            raise _Refused(f"{seen.st_size} bytes; a new or changed file may have {self.limits.file_bytes}")

    def _enter(self, path: bytes, mode: str, oid: str, size: int, data: bytes | None) -> None:
        entry = Entry(path, mode, oid, size)
        if entry != self.base.get(path):
            self._files += 1
            if self._files > self.limits.files:
                raise _Refused(f"more than {self.limits.files} new or changed files")
            if oid not in self._ids and data is not None:
                self._bytes += size
                if self._bytes > self.limits.total_bytes:
                    raise _Refused(f"more than {self.limits.total_bytes} bytes in new or changed files")
                self._ids.add(oid)
                self.keep(data)
        self.entries[path] = entry

    @contextlib.contextmanager
    def _at(self, folder: bytes) -> Iterator[int | None]:
        """A descriptor of a folder of the tree; None where it cannot be had (gone, or said in a refusal)."""
        with contextlib.ExitStack() as stack:
            fd = None
            with self._refusing(folder):
                fd = stack.enter_context(closing(self._reach(folder)))
            yield fd

    def _reach(self, folder: bytes) -> int:
        """Open a folder name by name, following no link."""
        fd = os.dup(self._top)
        try:
            for part in folder.split(b"/") if folder else ():
                fd, parent = _open(part, _FOLDER, fd), fd
                os.close(parent)
            self._on_device(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _on_device(self, fd: int) -> None:
        if os.fstat(fd).st_dev != self._device:
            raise _Refused("it lies on another file system")


def _open(name: bytes, flags: int, parent: int) -> int:
    """Open, and where only the mode forbids it, give its owner (who we are, or root) the right to read first."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        with closing(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as handle:
            held = os.fstat(handle).st_mode
            more = stat.S_IRWXU if stat.S_ISDIR(held) else stat.S_IRUSR
            Path(f"/proc/self/fd/{handle}").chmod(stat.S_IMODE(held) | more)
        return os.open(name, flags, dir_fd=parent)


def _chunks(fd: int, size: int) -> Iterator[bytes]:
    """What a file holds, up to the size it had when it was opened."""
    while size > 0 and (data := os.read(fd, min(size, _CHUNK))):
        size -= len(data)
        yield data


def _blob_id(size: int, chunks: Iterable[bytes]) -> str:
    """The object id of a file of that many bytes; of none where it shrank meanwhile."""
    sha = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for data in chunks:
        sha.update(data)
    return sha.hexdigest()
