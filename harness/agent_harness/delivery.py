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
_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*): (.*)")
_TAKEN = ("but expected", "reference already exists", "stale info", "[rejected]", "[remote rejected]")


def deliver(repository: HarnessRepository, source: str, *, commit: str, branch: str, expected_old: str | None) -> None:
    """Point `branch` of the source (a path or URL) at `commit`, if it still points at `expected_old` (None: if there
    is no such branch). Fine where it points at `commit` already, so that it may be repeated after a crash.

    Raises DeliveryRefused (somebody else moved or holds the branch), UsageError (no branch can have that name) or
    GitFault (disk, permission, lock, network)."""
    place = locate(source)
    if repository.git.attempt("check-ref-format", f"refs/heads/{branch}").code or branch.startswith("-"):
        raise UsageError(f"{branch!r} cannot be the name of a branch")
    there = tip(repository, place, branch)
    if there == commit:
        return
    if there != expected_old:
        raise _moved(repository, place, branch, there, expected_old)
    if place.url:
        _push(repository, place, commit, branch, expected_old)
    else:
        _store(repository, place, commit, branch, expected_old)


def landed(repository: HarnessRepository, source: str, *, commit: str, branch: str) -> bool:
    """Whether a commit was delivered: its branch is at it, or (on this machine) any branch has it, for somebody may
    have gone on from there, merged or renamed it already."""
    place = locate(source)
    if place.url:
        return tip(repository, place, branch) == commit
    found = place.git.attempt("for-each-ref", "--count=1", f"--contains={commit}", "refs/heads")
    return not found.code and bool(found.out)


def message(title: str, body: str, trailers: Mapping[str, str]) -> str:
    """A commit message: the title as one line of at most 72 characters, the body, and the trailers as the last
    paragraph. Control characters are taken out; a body can neither add a trailer nor hide one."""
    line = " ".join(_clean(title).split()) or "Change"
    if len(line) > _TITLE:
        line = line[: _TITLE - 1].rstrip() + "…"
    text = "\n".join(part.rstrip() for part in _clean(body).splitlines()).strip("\n")
    last = "\n".join(f"{name}: {' '.join(_clean(value).split())}" for name, value in trailers.items())
    if any(_TRAILER.fullmatch(part) is None for part in last.splitlines()):
        raise ValueError(f"not all of these can be trailers: {last!r}")
    return "\n\n".join(part for part in (line, text, last) if part) + "\n"


def trailers(text: str) -> list[tuple[str, str]]:
    """The trailers of a commit message: its last paragraph, if it is not the title and each line is `Name: value`."""
    parts = text.strip("\n").split("\n\n")
    found = [_TRAILER.fullmatch(line) for line in parts[-1].splitlines()] if len(parts) > 1 else []
    return [(m[1], m[2]) for m in found if m] if all(found) else []


def _clean(text: str) -> str:
    return "".join(c for c in text.replace("\t", " ") if c == "\n" or c.isprintable())


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
    done = git.attempt("cat-file", "commit", there)
    head, _, text = done.out.decode("utf-8", "replace").partition("\n\n")
    author = next((line.split(" ", 1)[1].rsplit(" <", 1)[0] for line in head.splitlines() if line[:7] == "author "), "")
    who = f"{there[:12]}" + (f" by {author}: {text.splitlines()[0] if text else ''}" if author else "")
    built = f"the delivery was built on {expected[:12]}" if expected else "the delivery expected no such branch"
    next_ = "look at that branch, then rename it or run again"
    return DeliveryRefused(what, why=f"it is at {who}; {built}", next=next_)


def _unwritten(source: Source, branch: str) -> str:
    return f"branch {branch} of {source.shown} was not written"


def _refuse_checked_out(source: Source, branch: str) -> None:
    listed = source.git.run("worktree", "list", "--porcelain").decode("utf-8", "replace")
    if at := re.search(rf"^worktree (.*)\n(?:.+\n)*branch refs/heads/{re.escape(branch)}$", listed, re.MULTILINE):
        why, next_ = f"it is checked out in {at[1]}", "switch that checkout to another branch"
        raise DeliveryRefused(_unwritten(source, branch), why=why, next=next_)


# --- a repository of this machine -------------------------------------------------------------------------------


def _store(repository: HarnessRepository, source: Source, commit: str, branch: str, old: str | None) -> None:
    git = source.git
    _refuse_in_the_way(source, branch)
    _refuse_checked_out(source, branch)
    if git.attempt("cat-file", "-e", f"{commit}^{{commit}}").code or _incomplete(git, commit).code:
        _send(repository, git, commit)
    ref = f"refs/heads/{branch}"
    swap = f"start\0option no-deref\0update {ref}\0{commit}\0{old or _ZERO}\0prepare\0commit\0"
    done = git.attempt(*_DURABLE, "update-ref", "-m", "agent-harness: delivered", "-z", "--stdin", stdin=swap.encode())
    if done.code:
        raise _swap_error(repository, source, branch, old, done)


def _send(repository: HarnessRepository, git: Git, commit: str) -> None:
    """Give the source the commit's objects that it lacks, and check that nothing is missing before any ref moves."""
    history = repository.git.run("rev-list", commit)
    found = git.run("cat-file", "--batch-check", stdin=history).decode("ascii").splitlines()
    has = [line.split()[0] for line in found if line.split()[1] == "commit" and line.split()[0] != commit]
    wanted = "".join(f"{line}\n" for line in (commit, *(f"^{have}" for have in has[:1000])))
    pack = ("pack-objects", "--quiet", "--revs", "--thin", "--stdout", "--delta-base-offset")
    repository.git.pipe(pack, wanted.encode(), git, (*_DURABLE, "unpack-objects", "-q"))
    missing = _incomplete(git, commit)
    if missing.code:
        raise missing.fault()


def _incomplete(git: Git, commit: str) -> Done:
    return git.attempt("rev-list", "--objects", "--quiet", commit, "--not", "--all", timeout_s=LONG_S)


def _refuse_in_the_way(source: Source, branch: str) -> None:
    """A branch `a` leaves no room for `a/b`, nor the other way round."""
    parts = branch.split("/")
    above = [f"refs/heads/{'/'.join(parts[:n])}" for n in range(1, len(parts))]
    ref = f"refs/heads/{branch}"
    names = source.git.run("for-each-ref", "--format=%(refname)", *above, f"{ref}/").decode("utf-8", "replace").split()
    for name in names:
        if name in above or name.startswith(f"{ref}/"):
            other = name.removeprefix("refs/heads/")
            why = f"git cannot have it beside the branch {other}"
            raise DeliveryRefused(_unwritten(source, branch), why=why, next=f"rename the branch {other}")


def _swap_error(
    repository: HarnessRepository, source: Source, branch: str, old: str | None, done: Done
) -> DeliveryRefused | GitFault:
    if any(mark in done.err.decode("utf-8", "replace") for mark in _TAKEN):
        return _moved(repository, source, branch, tip(repository, source, branch), old)
    fault = done.fault()
    return GitFault(_unwritten(source, branch), why=fault.why, next=fault.next)


# --- a URL ------------------------------------------------------------------------------------------------------


def _push(repository: HarnessRepository, source: Source, commit: str, branch: str, old: str | None) -> None:
    ref = f"refs/heads/{branch}"
    net = Git(repository.path, network=True)
    flags = ("--quiet", "--porcelain", "--no-verify", "--no-follow-tags", f"--force-with-lease={ref}:{old or ''}")
    done = net.attempt("push", *flags, "--", source.url, f"{commit}:{ref}", timeout_s=LONG_S)
    if not done.code:
        return
    said = done.out.decode("utf-8", "replace")
    rejected = next((line for line in said.splitlines() if line.startswith("!")), "")
    if "stale info" in rejected:
        raise _moved(repository, source, branch, tip(repository, source, branch), old)
    what = _unwritten(source, branch)
    if rejected:
        raise DeliveryRefused(what, why=masked(rejected.split("\t")[-1]), next="see what the other side allows")
    raise remote_fault(what, done)
