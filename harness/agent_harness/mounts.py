"""Which folders of this machine a project may show inside its sandboxes, and its package caches."""

import os
import posixpath
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path

from agent_harness.errors import UsageError
from agent_harness.types import Mount
from agent_harness.workspace.scan import KINDS

OURS = ("/workspace", "/base", "/tmp", "/scratch", "/cache", "/run", "/var/run", "/proc", "/dev", "/sys", "/etc")  # noqa: S108
"""Places inside that are the harness's or the kernel's own."""
HOST = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/var/lib/docker", "/var/lib/containerd")
"""Folders of the host with its devices, sockets, keys and engine."""
LOOKED = 50_000
"""Names below a source that are looked at for sockets."""
KEYS = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".config", ".git-credentials")
CACHES = {
    "pip": {"PIP_CACHE_DIR": "/cache/pip"},
    "npm": {"npm_config_cache": "/cache/npm", "npm_config_logs_max": "0"},
    "cargo": {"CARGO_HOME": "/cache/cargo"},
    "go": {"GOMODCACHE": "/cache/go"},
}


def declared(mounts: Sequence[Mount], *, state: Path, source: str, table: str | None = None) -> tuple[Mount, ...]:
    """The mounts a project asks for, each source resolved. `source` is the repository, `table` the kernel's list of
    mount points in place of this machine's. Raises UsageError for one that would open the host or a judge."""
    points = _points(Path("/proc/self/mountinfo").read_text(errors="replace") if table is None else table)
    found = []
    for mount in mounts:
        path = Path(mount.source).expanduser()
        if why := next(_faults(mount, path, state.resolve(), Path(source).resolve(), points), ""):
            raise UsageError(f"sandbox.mounts: {mount.source} at {mount.target} is refused", why=why)
        found.append(Mount(str(path.resolve()), posixpath.normpath(mount.target), mount.read_only))
    _apart(found)
    return tuple(found)


def caches(names: Iterable[str], state: Path, *, read_only: bool) -> tuple[Mount, ...]:
    """The folders of a project's package caches, made where they are not there yet."""
    folders = {name: state / "caches" / name for name in names}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    return tuple(Mount(str(folder), f"/cache/{name}", read_only) for name, folder in folders.items())


def _faults(mount: Mount, path: Path, state: Path, repository: Path, points: list[Path]) -> Iterator[str]:
    """Why a mount may not be made, each reason looked for when it is asked for."""
    shown, target = path.resolve(), posixpath.normpath(mount.target)
    closed = [*map(Path, HOST), state, repository / ".git", *(Path.home() / name for name in KEYS)]
    if not path.is_absolute():
        yield "its source is not an absolute path"
    if not shown.exists():
        yield f"{mount.source} is no file or folder"
    if shown == Path("/"):
        yield "it is the whole machine"
    yield from (f"{one} is closed, and it holds or is in it" for one in closed if _met(shown, one))
    if special := _special(shown):
        yield f"{special}, by which what is inside could speak with the machine"
    if not target.startswith("/") or target in {"/", "//"}:
        yield "its target is no place inside"
    yield from (f"its target covers {one}" for one in OURS if _met(Path(target), Path(one)))
    if repository.is_relative_to(shown):
        yield "it is the repository, or holds it"
    yield from (f"{one} is mounted below it" for one in points if one != shown and one.is_relative_to(shown))
    if not mount.read_only and shown.is_relative_to(repository):
        yield "it is in the repository, and no run changes your checkout"


def _met(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _special(top: Path) -> str:
    """The first thing at or below a place that is no file, folder or link: what it is and where. Read-only or not, a
    socket of an engine or an SSH agent answers whoever reaches it. Of a large tree the upper part is looked at, and
    what comes later is not seen: this finds mistakes, and the sandbox's user bounds what the rest can do."""
    todo, names = deque([top]), 0
    while todo and names < LOOKED:
        at = todo.popleft()
        with suppress(PermissionError, FileNotFoundError, NotADirectoryError):  # the last two: it went meanwhile
            kind = stat.S_IFMT(at.lstat().st_mode)
            if kind not in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
                return f"{at} is {KINDS.get(kind, 'no file')}"
            for one in os.scandir(at) if kind == stat.S_IFDIR else ():
                names += 1
                if not one.is_file(follow_symlinks=False) and not one.is_symlink():
                    todo.append(Path(one.path))
    return ""


def _apart(mounts: Sequence[Mount]) -> None:
    """No writable source may show through another mount, and no target lie in another."""
    for one, other in permutations(mounts, 2):
        if Path(one.source).is_relative_to(other.source) and not (one.read_only and other.read_only):
            raise UsageError(f"sandbox.mounts: {one.source} and {other.source} overlap, and one is writable")
        if Path(one.target).is_relative_to(other.target):
            raise UsageError(f"sandbox.mounts: the targets {one.target} and {other.target} overlap")


def _points(table: str) -> list[Path]:
    """The mount points of a mountinfo table; the kernel writes blanks in octal."""
    rows = [line.split(" ") for line in table.splitlines()]
    return [Path(row[4].encode().decode("unicode_escape").encode("latin-1").decode()) for row in rows if len(row) > 4]
