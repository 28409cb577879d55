"""The harness's own repository: bare, private, and the only one in which candidates exist before delivery."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from agent_harness.errors import GitFault, UsageError
from agent_harness.git import LONG_S, Git
from agent_harness.types import Candidate, Change
from agent_harness.workspace import checkout
from agent_harness.workspace import source as sources
from agent_harness.workspace.capture import capture_tree, changes, listing
from agent_harness.workspace.checkout import ATTRIBUTES, Checkout, Place
from agent_harness.workspace.entries import FILE, PROGRAM, Entry, shown, unsafe
from agent_harness.workspace.scan import CaptureLimits
from agent_harness.workspace.source import Source, locate, shallow_ends
from agent_harness.workspace.spares import Spares

_BASES = "refs/harness/base"
_HAVES = 50
_LIMITS = CaptureLimits()
_INIT = "init --quiet --bare --template= --object-format=sha1 --initial-branch=none"
_LOCK_TRIES = 200
_LONGEST_TIME = 12
"""Digits of a time that git takes back: none after the year 3000 and some."""
_SCRATCH = "harness-capture-"
_STALE_S = 86_400


class HarnessRepository:
    """Base commits come in, work trees go out, candidates are captured and kept. Safe for several processes."""

    def __init__(self, path: Path) -> None:
        self.path, self.git = path, Git(path)
        self._spares = Spares(path / "harness-spares", self._lay)

    @classmethod
    def open(cls, path: Path) -> HarnessRepository:
        """The repository at `path`, made where there is none. Only its owner can look into it."""
        path = path.absolute()
        repository, attributes = cls(path), path / "info" / "attributes"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            if not (path / "HEAD").exists():
                repository.git.run(*_INIT.split())
            attributes.parent.mkdir(exist_ok=True)
            if not attributes.exists() or attributes.read_text() != ATTRIBUTES:
                attributes.write_text(ATTRIBUTES)
        except OSError as error:
            how = "make it a folder that this user may write in"
            raise GitFault(
                f"the harness's repository {path} cannot be opened", why=str(error.strerror), next=how
            ) from error
        for left in path.glob(f"{_SCRATCH}*"):  # by a process that was killed
            if left.stat().st_mtime < time.time() - _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
        repository._spares.sweep()
        return repository

    # --- bases --------------------------------------------------------------------------------------------------

    def fetch(self, source: str, ref: str) -> str:
        """Bring in the commit that `ref` names in `source` (a path or URL) with its history; gives back its id.

        Quick where it is here already. Raises UsageError (no repository, no commit, no such ref) or GitFault."""
        if self.kept(f"{_BASES}/{ref}") == ref:  # a commit's whole id: also one that only we have
            return ref
        place = locate(source)
        if place.url:
            return self._fetch_url(place, ref)
        commit = sources.resolve(place, ref)
        if self.kept(f"{_BASES}/{commit}") is None:
            self._bring(place, commit)
            self.keep(f"{_BASES}/{commit}", commit)
        return commit

    def apply(self, base: str, patch: bytes) -> str:
        """The commit that a patch makes of `base`, kept as bases are. Raises UsageError where a hunk does not fit."""
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self.path) as scratch:
            git = Git(self.path, index=Path(scratch) / "index")
            git.run("read-tree", base)
            done = git.attempt("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch)
            if done.code:
                how = "make it against that commit, or name the one it was made against: --base REF"
                raise UsageError(f"the patch does not apply to {base[:12]}", why=done.why, next=how)
            tree = git.line("write-tree")
        commit = self.commit_tree(tree, base, "")  # no message: a story is told by --claims
        self.keep(f"{_BASES}/{commit}", commit)
        return commit

    def _bring(self, source: Source, commit: str) -> None:
        git = source.git
        if cut := shallow_ends(git):
            history = git.run("rev-list", commit).decode("ascii").split()
            self._cut_history(cut.intersection(history))
        try:
            git.send(commit, self._shared(git), self.git, "index-pack", "--stdin", "--fix-thin")
        except GitFault as fault:
            if "promisor" in fault.why or "lazy fetching" in fault.why:
                how = "run `git fetch --refetch --no-filter` there, or give the URL it was cloned from"
                raise UsageError(f"{source.shown} is a partial clone", why="objects are missing", next=how) from fault
            raise

    def _shared(self, git: Git) -> list[str]:
        """The newest bases that are here and in the source too: what they hold need not be sent."""
        if shallow_ends(self.git) - shallow_ends(git):  # the source may hold what lies below where ours was cut
            return []
        newest = ("--sort=-committerdate", f"--count={_HAVES}", "--format=%(objectname)")
        return git.commits(self.git.run("for-each-ref", *newest, _BASES))

    def _fetch_url(self, source: Source, ref: str) -> str:
        net = Git(self.path, network=True)
        refs = sources.remote_refs(net, source)
        name = sources.choose(refs, ref)
        if not refs:
            raise sources.no_commits(source)
        if name is None:
            names = (n.split("/", 2)[2] for n in refs if n.startswith(("refs/heads/", "refs/tags/")) and "^" not in n)
            raise sources.unknown(source, ref, names)
        told = refs.get(f"{name}^{{}}") or refs.get(name, name)
        if self.kept(f"{_BASES}/{told}") is not None:
            return told
        incoming = f"refs/harness/incoming/{uuid.uuid4().hex}"
        flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--update-shallow")
        done = net.attempt("fetch", *flags, "--", source.url, f"+{name}:{incoming}", timeout_s=LONG_S)
        if done.code:
            raise sources.remote_fault(f"cannot fetch {ref} from {source.shown}", done)
        try:
            peeled = self.git.attempt("rev-parse", "--verify", "--quiet", f"{incoming}^{{commit}}")
            if peeled.code:
                raise UsageError(f"{ref!r} of {source.shown} is not a commit", next="name a branch, tag or commit")
            commit = peeled.out.decode("ascii").strip()
            self.keep(f"{_BASES}/{commit}", commit)
        finally:
            self.git.run("update-ref", "-d", incoming)
        return commit

    def _cut_history(self, ends: set[str]) -> None:
        """Note commits whose parents the source does not have, the way git notes them in a shallow clone."""
        lock = self.path / "shallow.lock"
        fd = _locked(lock)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.writelines(f"{end}\n" for end in sorted(ends | shallow_ends(self.git)))
        lock.replace(self.path / "shallow")

    # --- work trees and candidates ------------------------------------------------------------------------------

    def materialise(self, commit: str, dest: Path, *, uid: int, gid: int, with_git: bool = True) -> Checkout:
        """Write a commit's exact files into the new or empty folder `dest`, as `uid`'s where we are root.

        With git, a disposable repository of its own comes along: one branch, the commit's history, a clean status.
        Raises UsageError where a path in the commit cannot be written safely, or GitFault."""
        place = Place(dest, uid, gid)
        try:
            return (with_git and self._spares.take(commit, place)) or self._lay(commit, place, with_git)
        except OSError as error:
            raise GitFault(f"cannot write the work tree {dest}", why=str(error.strerror)) from error

    def lay_ahead(self, commit: str, *, uid: int, gid: int) -> None:
        """Lay out a work tree with git in the background, for the next `materialise` of this commit and owner, in
        whatever process. It takes the place of a spare of another commit. `rest` ends it."""
        self._spares.start(commit, Place(self.path, uid, gid))

    def rest(self) -> None:
        """Give up what is being laid out ahead. A finished spare stays."""
        self._spares.stop()

    def _lay(self, commit: str, place: Place, with_git: bool = True) -> Checkout:
        entries = listing(self.git, commit)
        made, seen = checkout.write_tree(self.git, entries, place, checkout.file_time(self._committed(commit)))
        if with_git:
            ends = shallow_ends(self.git)
            if ends:
                ends &= set(self.git.run("rev-list", commit).decode("ascii").split())
            with checkout.packed(self.git, self.path / "harness-packs", commit) as pack:
                checkout.write_git(place, pack, commit, checkout.index_file(entries, seen), ends)
        return made

    def capture(
        self,
        base: str,
        work_tree: Path,
        *,
        keep_as: str,
        message: str,
        limits: CaptureLimits = _LIMITS,
    ) -> Candidate:
        """The candidate that a work tree holds, on top of `base`. The tree's own `.git` is never looked at.

        `keep_as` is the ref (below refs/harness/) that keeps the commit. What can be no part of a candidate is left
        out of its tree and named in `refusals`. The same base, tree and message always give the same commit.

        Raises UsageError (no work tree) or GitFault."""
        commit = lambda tree: self.commit_tree(tree, base, message, keep_as=keep_as)
        try:
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self.path) as scratch:
                return capture_tree(self.path, base, work_tree, Path(scratch), limits=limits, commit=commit)
        except OSError as error:
            raise GitFault(f"cannot capture {work_tree}", why=str(error.strerror)) from error

    def commit_tree(
        self, tree: str, parent: str, message: str, *, at_s: int | None = None, keep_as: str | None = None
    ) -> str:
        """Make a commit, with the harness as author. `at_s` (seconds since the epoch) None is the parent's time."""
        date = f"@{self._committed(parent) if at_s is None else at_s} +0000"
        env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        stdin = message.encode("utf-8", "replace")
        commit = self.git.line("commit-tree", tree, "-p", parent, stdin=stdin, env=env)
        if keep_as:
            self.keep(keep_as, commit)
        return commit

    # --- looking ------------------------------------------------------------------------------------------------

    def paths(self, treeish: str) -> list[Entry]:
        """Every file, link and submodule of a commit or tree."""
        return list(listing(self.git, treeish).values())

    def read(self, treeish: str, path: str, limit: int) -> bytes | None:
        """A regular file of a commit or tree; None where there is none. Raises ValueError where it is larger than
        `limit` bytes."""
        if unsafe(os.fsencode(path)):
            return None
        entry = listing(self.git, treeish, path).get(os.fsencode(path))
        if entry is None or entry.mode not in {FILE, PROGRAM}:
            return None
        if entry.size > limit:
            raise ValueError(f"{shown(entry.path)} has {entry.size} bytes, more than {limit}")
        return self.git.run("cat-file", "blob", entry.oid)

    def changes(self, old: str, new: str) -> tuple[Change, ...]:
        """What differs between two commits or trees, by path."""
        return changes(self.git, listing(self.git, old), listing(self.git, new))

    def diff(self, old: str, new: str, kind: str = "--patch") -> bytes:
        """The difference as text for a reader; binary files are named only, a rename is a deletion and an addition.
        As `--binary` it is the whole difference, as `git apply` takes it."""
        flags = "-r --full-index --no-renames --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/"
        # Submodule pointers are part of a tree and must show, whatever `diff.ignoreSubmodules` says.
        more = ("--ignore-submodules=none", "--submodule=short", "--end-of-options")
        return self.git.run("diff-tree", kind, *flags.split(), *more, old, new)

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self.git.line("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")

    def merge_base(self, one: str, other: str) -> str | None:
        """The newest commit that both histories hold, or None."""
        done = self.git.attempt("merge-base", "--end-of-options", one, other)
        if done.code > 1:
            raise done.fault()
        return done.out.decode("ascii").strip() or None

    # --- refs ---------------------------------------------------------------------------------------------------

    def keep(self, ref: str, commit: str) -> None:
        """Point a ref below refs/harness/ at a commit, so that it stays."""
        if not ref.startswith("refs/harness/") or self.git.attempt("check-ref-format", ref).code:
            raise UsageError(f"{ref!r} is not a ref of the harness", next="name one below refs/harness/")
        self.git.run("update-ref", "--no-deref", ref, commit)

    def kept(self, ref: str) -> str | None:
        """The commit that a ref keeps, or None."""
        done = self.git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return None if done.code else done.out.decode("ascii").strip()

    def _committed(self, commit: str) -> int:
        told = self.git.line("rev-list", "--no-walk", "--no-commit-header", "--format=%ct", commit)
        return int(told) if told.isdecimal() and len(told) < _LONGEST_TIME else 0


def _locked(lock: Path) -> int:
    """Take one of git's own lock files; waits a little for another holder."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(FileExistsError):
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        time.sleep(0.05)
    raise GitFault(f"{lock} is held", next="remove it if no other git process runs")
