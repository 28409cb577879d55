"""Tree entries and what their names and links mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

FILE, PROGRAM, LINK, GITLINK, ABSENT = "100644", "100755", "120000", "160000", "000000"

LONGEST_NAME, DEEPEST = 255, 200
LONGEST_PATH = 2048
"""Bytes of a path inside a tree. Longer ones cannot be checked out below an ordinary folder."""

_HFS_SKIPS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DOT_GIT = re.compile(r"(?:\.git|git~\d+)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
_HOPS = 40


class Entry(NamedTuple):
    """One file, link or submodule of a tree. `mode` is git's octal text; `size` in bytes (0 of a submodule)."""

    path: bytes
    mode: str
    oid: str
    size: int


def folders(paths: Iterable[bytes]) -> set[bytes]:
    """Every folder that the paths lie in."""
    found: set[bytes] = set()
    for path in paths:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found


def shown(path: bytes) -> str:
    """A path for people: undecodable bytes and control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in path.decode("utf-8", "backslashreplace"))


def means_git(name: bytes) -> bool:
    """Some file system would take this name for `.git`."""
    if b"git" not in name.lower() and name.isascii():
        return False
    return _DOT_GIT.fullmatch(_HFS_SKIPS.sub("", name.decode("utf-8", "replace"))) is not None


def unsafe(path: bytes) -> str:
    """Why a path of a tree cannot be written into a folder, or an empty text."""
    parts = path.split(b"/")
    if any(part in {b"", b".", b".."} for part in parts):
        return "it would lie outside the tree"
    if any(means_git(part) for part in parts):
        return "it would be taken for git's own folder"
    return "its path is too long" if max(map(len, parts)) > LONGEST_NAME else too_long(path)


def too_long(path: bytes) -> str:
    """Why no ordinary folder has room for a path, or not every program gets down to it; an empty text where it has."""
    if len(path) > LONGEST_PATH:
        return f"its path is longer than {LONGEST_PATH} bytes"
    return f"it lies in more than {DEEPEST} folders" if path.count(b"/") > DEEPEST else ""


def leads_out(path: bytes, links: Mapping[bytes, bytes]) -> str:
    """Why the link at `path` may not be: it is absolute, or leads out of the tree or into git's folder, also by way
    of other links of the tree. An empty text where it may. `links` maps each link of the tree to its target."""
    todo = path.split(b"/")[::-1]
    at: list[bytes] = []
    hops = 0
    while todo:
        part = todo.pop()
        if part in {b"", b"."}:
            continue
        if part == b"..":
            if not at:
                return "the link leads out of the tree"
            at.pop()
            continue
        at.append(part)
        if means_git(part):
            return "the link leads into git's own folder"
        target = links.get(b"/".join(at))
        if target is not None:
            hops += 1
            if hops > _HOPS:
                return "the link leads nowhere: too many links on the way"
            if target.startswith(b"/"):
                return "the link is absolute"
            at.pop()
            todo += target.split(b"/")[::-1]
    return ""
