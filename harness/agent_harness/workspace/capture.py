"""From a work tree to a candidate: the exact tree, what differs from the base, and what could not be taken in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from unicodedata import normalize

from agent_harness.errors import GitFault, UsageError
from agent_harness.git import LONG_S, Git, blobs
from agent_harness.types import Candidate, Change
from agent_harness.workspace.entries import ABSENT, FILE, LINK, PROGRAM, Entry, folders, leads_out, shown
from agent_harness.workspace.folders import closing, opened
from agent_harness.workspace.ignore import IgnoreRules
from agent_harness.workspace.scan import CaptureLimits, Scan

_SHOWN = 200
_SNIFF = 8000
_NOTHING = Entry(b"", ABSENT, "", 0)


def listing(git: Git, treeish: str, *paths: str) -> dict[bytes, Entry]:
    """Every file, link and submodule of a tree (those at or below `paths`, where given), in git's order."""
    wrote = git.run("ls-tree", "-r", "-l", "-z", "--full-tree", "--end-of-options", treeish, *paths)
    entries = {}
    for line in wrote.split(b"\0")[:-1]:
        head, _, path = line.partition(b"\t")
        mode, _, oid, size = head.decode("ascii").split()
        entries[path] = Entry(path, mode, oid, int(size) if size != "-" else 0)
    return entries


def capture_tree(
    git_dir: Path,
    base: str,
    work_tree: Path,
    scratch: Path,
    *,
    limits: CaptureLimits,
    commit: Callable[[str], str],
) -> Candidate:
    """Write the tree that a work tree holds into the repository; `commit` makes the commit of it."""
    git = Git(git_dir)
    before = listing(git, base)
    try:
        top = opened(work_tree, os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"no work tree at {work_tree}", why=str(error.strerror)) from error
    rules = IgnoreRules(git_dir, before, scratch)
    with closing(top), tempfile.TemporaryFile(dir=scratch) as stream:

        def keep(data: bytes) -> None:
            try:
                stream.writelines((b"blob\ndata %d\n" % len(data), data, b"\n"))  # as fast-import takes it
            except OSError as error:  # our disk's fault, not the file's that was read
                raise GitFault(f"cannot capture {work_tree}", why=str(error.strerror)) from error

        scan = Scan(before, rules.drop, keep, limits)
        scan.run(top)
        _judge_links(git, before, scan)
        _judge_names(before, scan)
        if stream.tell():
            stream.seek(0)
            git.run("-c", "core.compression=1", "fast-import", "--quiet", stdin=stream, timeout_s=LONG_S)
    tree = _write_tree(Git(git_dir, index=scratch / "index"), base, before, scan.entries)
    if listing(git, tree) != scan.entries:
        raise GitFault("the captured tree is not what was read", why=f"git wrote another tree {tree[:12]}")
    ignored = [shown(path) for path in sorted(scan.ignored)]
    if len(ignored) > _SHOWN:
        ignored[_SHOWN:] = [f"… and {len(ignored) - _SHOWN} more"]
    refusals = tuple(sorted(scan.refusals, key=lambda refusal: refusal.path))
    return Candidate(base, tree, commit(tree), changes(git, before, scan.entries), refusals, tuple(ignored))


def changes(git: Git, old: Mapping[bytes, Entry], new: Mapping[bytes, Entry]) -> tuple[Change, ...]:
    """What differs between two listings, by path. A rename is a deletion and an addition."""
    paths = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    pairs = [(old.get(path, _NOTHING), new.get(path, _NOTHING)) for path in paths]
    binary = _binary(git, {e.oid for pair in pairs for e in pair if e.mode in {FILE, PROGRAM}})
    return tuple(
        Change(path, _status(a, b), a.mode, b.mode, b.size, bool({a.oid, b.oid} & binary))
        for path, (a, b) in zip(paths, pairs, strict=True)
    )


def _judge_links(git: Git, base: Mapping[bytes, Entry], scan: Scan) -> None:
    """Leave out the links that lead out, but for those that led out in the base already, unchanged."""
    if not scan.links:
        return
    known = [entry for entry in base.values() if entry.mode == LINK]
    read = blobs(git, [entry.oid for entry in known])
    before = {entry.path: b"".join(chunks) for entry, chunks in zip(known, read, strict=True)}
    for path, target in dict(scan.links).items():
        reason = leads_out(path, scan.links)
        if reason and not (before.get(path) == target and leads_out(path, before)):
            scan.refuse(path, reason)
            del scan.entries[path]


def _judge_names(base: Mapping[bytes, Entry], scan: Scan) -> None:
    """Leave out new files that some file systems take for another file of the tree, or for a folder of another name."""
    new = scan.entries.keys() - base.keys()
    if not new:
        return
    kept = scan.entries.keys() - new
    known = {_folded(path): path for path in (*folders(kept), *kept)}
    for path in sorted(new):
        for name in (*sorted(folders([path])), path):
            other = known.setdefault(_folded(name), name)
            if other != name:
                scan.refuse(path, f"where case does not count, its name is that of {shown(other)}")
                scan.entries.pop(path)
                scan.links.pop(path, None)
                break


def _folded(path: bytes) -> str:
    return normalize("NFC", path.decode("utf-8", "surrogateescape")).casefold()


def _write_tree(git: Git, base: str, before: Mapping[bytes, Entry], entries: Mapping[bytes, Entry]) -> str:
    """The tree object of these entries, as base plus what differs: nothing but names and ids, no work tree."""
    gone = [path for path in before if path not in entries]
    new = [entry for path, entry in entries.items() if entry != before.get(path)]
    lines = [b"0 %s\t%s\0" % (b"0" * 40, path) for path in gone]  # first, so that a folder may become a file
    lines += [f"{entry.mode} {entry.oid}\t".encode() + entry.path + b"\0" for entry in new]
    git.run("read-tree", base)
    git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
    return git.line("write-tree")


def _status(old: Entry, new: Entry) -> str:
    if old.mode == ABSENT:
        return "A"
    if new.mode == ABSENT:
        return "D"
    return "M" if old.mode[:2] == new.mode[:2] else "T"


def _binary(git: Git, ids: Iterable[str]) -> set[str]:
    """Those of the blobs that git takes for binary: a NUL byte among the first 8000."""
    wanted = sorted(ids)
    read = zip(wanted, blobs(git, wanted), strict=True)
    return {oid for oid, chunks in read if b"\0" in next(chunks, b"")[:_SNIFF]}
