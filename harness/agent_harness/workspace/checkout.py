"""A tree written into a fresh folder for a sandbox, with a disposable `.git` of its own.

The bytes are those of the objects: no filter, no line-end conversion, no LFS download. Files get one fixed time, so
that the same commit always gives the same folder and git's index in it is never in doubt. The `.git` shares nothing
with ours, not even an inode: whoever works there may break it without breaking anything else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from agent_harness.errors import Cancelled, UsageError
from agent_harness.git import IDENTITY, LONG_S, Git, blobs
from agent_harness.workspace.entries import GITLINK, LINK, PROGRAM, Entry, folders, shown, unsafe
from agent_harness.workspace.folders import boot, closing, opened

ATTRIBUTES = "* !filter !diff -text !eol !ident !working-tree-encoding !merge !export-ignore !export-subst\n"
"""Outranks every `.gitattributes`: bytes stay as they are, and git alone says what is binary."""

_POINTER, _POINTER_BYTES = b"version https://git-lfs.github.com/spec/", 1024
_BRANCH = "main"
_KEPT_PACKS = 3
_SHOWN, _LONGEST_TARGET = 200, 4096
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tautocrlf = false\n"
    f"\ttrustctime = false\n[gc]\n\tauto = 0\n[user]\n\tname = {IDENTITY[0]}\n\temail = {IDENTITY[1]}\n"
)


@dataclass(frozen=True, slots=True)
class Checkout:
    """What was written: how many files and links, the submodules that were left as empty folders, and the files that
    are pointers of Git LFS in place of their contents."""

    files: int
    submodules: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where to write and whose it shall be (`uid`, `gid`: only root can give files away, others keep them).
    `stopped` says when nobody wants it any more."""

    dest: Path
    uid: int
    gid: int
    stopped: Callable[[], bool] = bool

    def fresh(self) -> None:
        """Make the folder. Raises UsageError where something is in it already."""
        self.dest.mkdir(mode=0o755, exist_ok=True)
        if any(self.dest.iterdir()):
            raise UsageError(f"{self.dest} is not empty", next="give a new folder")
        self.own(self.dest)

    def own(self, target: Path) -> None:
        """Give a file, folder or link away."""
        if os.geteuid() == 0:
            os.lchown(target, self.uid, self.gid)

    def path(self, inside: bytes) -> Path:
        """A path of the tree as a path of the machine."""
        return self.dest / os.fsdecode(inside)


def write_tree(
    git: Git, entries: Mapping[bytes, Entry], place: Place, at_s: int
) -> tuple[Checkout, dict[bytes, os.stat_result]]:
    """Write the files into the new folder `place.dest`; gives back what the file system says of each, too.

    `at_s` is every file's time. Raises UsageError (the folder is not empty, a path cannot be written) or Cancelled."""
    inside = folders(entries)
    for path in entries:
        if reason := unsafe(path) or ("it is a file and a folder at once" if path in inside else ""):
            raise UsageError(f"{shown(path)[:_SHOWN]} cannot be checked out", why=reason)
    place.fresh()
    modules = [path for path, entry in entries.items() if entry.mode == GITLINK]
    for folder in sorted({*inside, *modules}):
        place.path(folder).mkdir(0o755)
        place.own(place.path(folder))
    # All folders are there and real before the first file, and links come last: nothing is written through a link.
    todo = sorted((e for e in entries.values() if e.mode != GITLINK), key=lambda e: e.mode == LINK)
    seen, pointers = {}, []
    for entry, chunks in zip(todo, blobs(git, [entry.oid for entry in todo]), strict=True):
        if place.stopped():
            raise Cancelled("nobody wants this work tree any more")
        head = next(chunks, b"")
        if entry.size < _POINTER_BYTES and head.startswith(_POINTER):
            pointers.append(shown(entry.path))
        seen[entry.path] = _write(entry, chain((head,), chunks), place, at_s * 10**9)
    return Checkout(len(seen), tuple(map(shown, modules)), tuple(pointers)), seen


def _write(entry: Entry, chunks: Iterable[bytes], place: Place, at_ns: int) -> os.stat_result:
    path = place.path(entry.path)
    if entry.mode == LINK:
        target = b"".join(chunks)
        if not 0 < len(target) < _LONGEST_TARGET or b"\0" in target:
            raise UsageError(f"{shown(entry.path)} cannot be checked out", why="no link can have its target")
        path.symlink_to(os.fsdecode(target))
    else:
        mode = 0o755 if entry.mode == PROGRAM else 0o644
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.writelines(chunks)
            os.fchmod(fd, mode)
    place.own(path)
    os.utime(path, ns=(at_ns, at_ns), follow_symlinks=False)
    return path.lstat()


@contextmanager
def packed(git: Git, folder: Path, commit: str) -> Generator[Path]:
    """A folder with the pack of a commit's whole history and its index, kept for the next work tree on that commit.
    Nobody removes it while the block runs; the newest few stay."""
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{commit}-{boot()}"  # a power cut may leave a file without its bytes
    with closing(opened(folder)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for extra in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)[: 1 - _KEPT_PACKS]:
                shutil.rmtree(extra)
            new = Path(tempfile.mkdtemp(dir=folder))
            args = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", "--threads=1", str(new / "pack"))
            git.run(*args, stdin=f"{commit}\n".encode(), timeout_s=LONG_S)
            new.rename(made)
        os.utime(made)
        yield made


def write_git(place: Place, pack: Path, commit: str, index: bytes, shallow: Iterable[str]) -> None:
    """Make `.git`: one branch at the commit, its history, nothing else."""
    top = place.dest / ".git"
    for folder in ("objects/pack", "objects/info", "info", "refs/heads", "refs/tags"):
        (top / folder).mkdir(parents=True)
    texts = {"HEAD": f"ref: refs/heads/{_BRANCH}\n", f"refs/heads/{_BRANCH}": f"{commit}\n", "config": _CONFIG}
    texts |= {"info/attributes": ATTRIBUTES, "shallow": "".join(f"{end}\n" for end in sorted(shallow))}
    for name, text in texts.items():
        if text:
            (top / name).write_text(text)
    (top / "index").write_bytes(index)
    for part in pack.iterdir():
        target = top / "objects/pack" / part.name
        shutil.copyfile(part, target)
        target.chmod(0o444)
    for folder, _, names in os.walk(top):
        for name in ("", *names):
            place.own(Path(folder, name))


def index_file(entries: Mapping[bytes, Entry], seen: Mapping[bytes, os.stat_result]) -> bytes:
    """Git's index (version 2) of a checkout, with the state of each file, so that `git status` need read none."""
    out = [struct.pack(">4sLL", b"DIRC", 2, len(entries))]
    for path, entry in entries.items():
        *before, uid, gid, size = _stat_words(seen[path]) if path in seen else (0,) * 9
        named = bytes.fromhex(entry.oid), min(len(path), 4095)
        head = struct.pack(">10L20sH", *before, int(entry.mode, 8), uid, gid, size, *named)
        out.append(head + path + b"\0" * (8 - (len(head) + len(path)) % 8))
    body = b"".join(out)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _stat_words(seen: os.stat_result) -> tuple[int, ...]:
    changed, written = divmod(seen.st_ctime_ns, 10**9), divmod(seen.st_mtime_ns, 10**9)
    words = (*changed, *written, seen.st_dev, seen.st_ino, seen.st_uid, seen.st_gid, seen.st_size)
    return tuple(word & 0xFFFFFFFF for word in words)


def file_time(committed_s: int) -> int:
    """The time files of a commit get: the commit's own, but never in the future or before the epoch."""
    return max(0, min(committed_s, int(time.time()) - 60))
