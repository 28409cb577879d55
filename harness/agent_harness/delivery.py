"""Delivery: a candidate's commit onto a branch of the source, by compare-and-swap, and nothing else.

Nobody's checkout, index, HEAD or other branch is touched, nothing that somebody else pushed is written over, and
whatever goes wrong, the candidate stays kept in the harness's own repository. A source on this machine gets the
objects first and then one ref update; a URL gets a push with a lease.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_harness.errors import DeliveryRefused, GitFault, UsageError
from agent_harness.git import LONG_S, Done, Git
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import Source, locate, masked, remote_fault, remote_refs

_TITLE = 72
_ZERO = "0" * 40
_DURABLE = ("-c", "core.fsync=committed,loose-object", "-c", "core.fsyncMethod=batch")
"""A branch that was reported as delivered outlives a power cut."""
_TAKEN = ("but expected", "reference already exists")


def deliver(repository: HarnessRepository, source: str, *, commit: str, branch: str, expected_old: str | None) -> None:
    """Point `branch` of the source (a path or URL) at `commit`, if it still points at `expected_old` (None: if there
    is no such branch). Fine where it points at `commit` already, so that it may be repeated after a crash.

    Raises DeliveryRefused (somebody else moved or holds the branch), UsageError (no branch can have that name) or
    GitFault (disk, permission, lock, network)."""
    place = locate(source)
    if repository.git.attempt("check-ref-format", f"refs/heads/{branch}").code or branch.startswith("-"):
        raise UsageError(f"{branch!r} cannot be the name of a branch")
    there = tip(repository, place, branch)
    if there == expected_old != commit:
        if (_push if place.url else _store)(repository, place, commit, branch, expected_old):
            return
        there = tip(repository, place, branch)
    if there != commit:
        raise _moved(repository, place, branch, there, expected_old)


def landed(repository: HarnessRepository, source: str, *, commit: str, branch: str) -> bool:
    """Whether a commit was delivered: its branch is at it, or (on this machine) any branch has it, for somebody may
    have gone on from there, merged or renamed it already."""
    place = locate(source)
    if place.url:
        return tip(repository, place, branch) == commit
    found = place.git.attempt("for-each-ref", "--count=1", f"--contains={commit}", "refs/heads")
    return not found.code and bool(found.out)


def message(title: str, trailers: Mapping[str, str]) -> str:
    """A commit message: the title as one line of at most 72 characters, and the trailers as the last paragraph. No
    title and no value can add a trailer: each is one line, without control characters."""
    line = _line(title) or "Change"
    if len(line) > _TITLE:
        line = line[: _TITLE - 1].rstrip() + "…"
    return "\n".join([line, "", *(f"{name}: {_line(value)}" for name, value in trailers.items()), ""])


def _line(text: str) -> str:
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())


# --- where a branch stands --------------------------------------------------------------------------------------


def tip(repository: HarnessRepository, source: Source, branch: str) -> str | None:
    """The commit a branch of the source points at, or None where there is no such branch."""
    ref = f"refs/heads/{branch}"
    if source.url:
        return remote_refs(Git(repository.path, network=True), source, ref).get(ref)
    done = source.git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
    return None if done.code else done.out.decode("ascii").strip()


def _moved(
    repository: HarnessRepository, source: Source, branch: str, there: str | None, expected: str | None
) -> DeliveryRefused:
    what = _unwritten(source, branch)
    if there is None:
        return DeliveryRefused(what, why=f"it is gone; it was to be at {str(expected)[:12]}", next="run the item again")
    git = repository.git if source.url else source.git
    words = ("--no-walk", "--no-commit-header", "--abbrev=12", "--format=%h by %an: %s")
    known = git.attempt("rev-list", *words, "--end-of-options", there).out.decode("utf-8", "replace").strip()
    built = f"the delivery was built on {expected[:12]}" if expected else "the delivery expected no such branch"
    next_ = "look at that branch, then rename it or run again"
    return DeliveryRefused(what, why=f"it is at {known or there[:12]}; {built}", next=next_)


def _unwritten(source: Source, branch: str) -> str:
    return f"branch {branch} of {source.shown} was not written"


def _refuse_checked_out(source: Source, branch: str) -> None:
    listed = source.git.run("worktree", "list", "--porcelain").decode("utf-8", "replace")
    if at := re.search(rf"^worktree (.*)\n(?:.+\n)*branch refs/heads/{re.escape(branch)}$", listed, re.MULTILINE):
        why, next_ = f"it is checked out in {at[1]}", "switch that checkout to another branch"
        raise DeliveryRefused(_unwritten(source, branch), why=why, next=next_)


# --- a repository of this machine -------------------------------------------------------------------------------


def _store(repository: HarnessRepository, source: Source, commit: str, branch: str, old: str | None) -> bool:
    """False where the branch was moved meanwhile."""
    git = source.git
    _refuse_checked_out(source, branch)
    if _incomplete(git, commit).code:
        _send(repository, git, commit)
    ref = f"refs/heads/{branch}"
    swap = f"start\0option no-deref\0update {ref}\0{commit}\0{old or _ZERO}\0prepare\0commit\0"
    done = git.attempt(*_DURABLE, "update-ref", "-m", "agent-harness: delivered", "-z", "--stdin", stdin=swap.encode())
    if not done.code:
        return True
    said, what = done.err.decode("utf-8", "replace"), _unwritten(source, branch)
    if near := re.search(r"'refs/heads/([^']*)' exists; cannot create", said):
        why = f"git cannot have it beside the branch {near[1]}"
        raise DeliveryRefused(what, why=why, next=f"rename the branch {near[1]}")
    if any(mark in said for mark in _TAKEN):
        return False
    fault = done.fault()
    raise GitFault(what, why=fault.why, next=fault.next)


def _send(repository: HarnessRepository, git: Git, commit: str) -> None:
    """Give the source the commit's objects that it lacks, and check that nothing is missing before any ref moves."""
    has = [one for one in git.commits(repository.git.run("rev-list", commit)) if one != commit]
    repository.git.send(commit, has[:1000], git, *_DURABLE, "unpack-objects", "-q")
    missing = _incomplete(git, commit)
    if missing.code:
        raise missing.fault()


def _incomplete(git: Git, commit: str) -> Done:
    """Ends with an exit code where something of the commit is missing. A branch that leads nowhere is none of it."""
    there = git.attempt("cat-file", "-e", f"{commit}^{{commit}}")
    words = ("--ignore-missing", "--objects", "--quiet", commit, "--not", "--all")
    return there if there.code else git.attempt("rev-list", *words, timeout_s=LONG_S)


# --- a URL ------------------------------------------------------------------------------------------------------


def _push(repository: HarnessRepository, source: Source, commit: str, branch: str, old: str | None) -> bool:
    """False where the branch was moved meanwhile."""
    ref = f"refs/heads/{branch}"
    net = Git(repository.path, network=True)
    flags = ("--quiet", "--porcelain", "--no-verify", "--no-follow-tags", f"--force-with-lease={ref}:{old or ''}")
    done = net.attempt("push", *flags, "--", source.url, f"{commit}:{ref}", timeout_s=LONG_S)
    if not done.code:
        return True
    said = done.out.decode("utf-8", "replace")
    rejected = next((line for line in said.splitlines() if line.startswith("!")), "")
    if "stale info" in rejected:
        return False
    what = _unwritten(source, branch)
    if rejected:
        raise DeliveryRefused(what, why=masked(rejected.split("\t")[-1]), next="see what the other side allows")
    raise remote_fault(what, done)
