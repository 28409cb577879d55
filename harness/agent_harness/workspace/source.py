"""Where work comes from and goes to: a repository given as a path or a URL.

A repository on this machine is read and written with plumbing on its own git directory, never through its
upload-pack or receive-pack, so that no hook and no program its configuration names is started. Root works in it as
its owner. Everything else goes over the wire with the user's own credentials.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent_harness.errors import CredentialError, GitFault, HarnessError, UsageError
from agent_harness.git import Done, Git, User

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP = re.compile(r"^(?:[^/:@\s]+@)?[^/:\s-][^/:\s]*:(?!:)")
_WIRE = {"http", "https", "ssh", "git"}
_ID = re.compile(r"[0-9a-f]{40}")
_VERIFY = ("rev-parse", "--verify", "--end-of-options")
_NAMES = 20_000
"""Names of a repository among which near ones are looked for."""
_ACCESS = "check the credential helper, token or SSH key of the user who runs this, with plain git"
_WIRE_FAULTS: tuple[tuple[str, type[HarnessError], str], ...] = (
    (r"host key verification failed", GitFault, "connect once with ssh, so that the host is in known_hosts"),
    (r"certificate", GitFault, "name who vouches for it: GIT_SSL_CAINFO=FILE, or http.sslCAInfo in your git config"),
    (
        r"authentication failed|could not read (username|password)|permission denied \(|error: 40[13]|access denied",
        *(CredentialError, _ACCESS),
    ),
    (r"not found|not appear to be a git|no such file", UsageError, "check the URL, and that you may read there"),
)
"""What a remote's git says, what that is, and what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A repository to read from and deliver to. Exactly one of `git_dir` and `url` is set.

    `shown` is its name for people: credentials in a URL are masked."""

    shown: str
    url: str = ""
    git_dir: Path | None = None
    user: User | None = None

    @property
    def git(self) -> Git:
        """Git on a repository of this machine, as its owner where we are root."""
        assert self.git_dir
        return Git(self.git_dir, user=self.user)


def locate(source: str) -> Source:
    """The repository that a path (its root, a folder in it, a worktree, a bare one) or a URL names.

    Raises UsageError where there is none."""
    match = _URL.match(source)
    if match and match[1].lower() == "file":
        return _local(unquote(urlsplit(source).path))
    if match and match[1].lower() not in _WIRE:
        raise UsageError(f"cannot use {masked(source)}", why=f"{match[1]}:// is not supported", next="use ssh or https")
    if match or (_SCP.match(source) and not os.path.exists(source)):  # noqa: PTH110 - raises for no name
        return Source(masked(source), url=source)
    return _local(source)


def masked(url: str) -> str:
    """A URL without what may be a secret in it."""
    return re.sub(r"(://)[^/\s]*@", r"\1***@", url)


def _local(text: str) -> Source:
    path = Path(os.path.abspath(text))  # noqa: PTH100 - resolve() would follow links the user sees as names
    if not text or not os.path.isdir(path):  # noqa: PTH112 - false for a name that no file can have, too
        raise UsageError(f"no repository at {text!r}", why="there is no such folder", next="give a path or URL of one")
    looked = Git(None, cwd=path).attempt("rev-parse", "--show-object-format", "--absolute-git-dir")
    if looked.code and b"not a git repository" in looked.err:
        if (path / ".git").exists():
            how = "repair it (`git worktree repair`, where it is a worktree and its repository moved), or give another"
            raise UsageError(f"{path} cannot be used", why=f"git takes its .git for none: {looked.why}", next=how)
        raise UsageError(f"{path} is not in a git repository", next="run `git init` and commit, or give another path")
    if looked.code:
        raise looked.fault()
    kind, _, folder = looked.out.rstrip(b"\n").partition(b"\n")
    if kind != b"sha1":
        raise UsageError(f"{path} cannot be used", why=f"its object format is {kind.decode()}", next="use a sha1 one")
    git_dir = Path(os.fsdecode(folder))
    return Source(str(path), git_dir=git_dir, user=_owner(git_dir))


def _owner(git_dir: Path) -> User | None:
    """Who to be in there: the owner, where we are root and the owner can reach it. (Who cannot reach it, nor open a
    folder of their own on the way, is neither locked out by root's files nor able to turn root's writes elsewhere.)"""
    seen = git_dir.stat()
    if os.geteuid() != 0 or seen.st_uid == 0:
        return None
    user = User(seen.st_uid, seen.st_gid)
    groups = {user.gid, *user.groups}
    for folder in git_dir.parents:
        held = folder.stat()
        if held.st_uid != user.uid and not held.st_mode & (stat.S_IXGRP if held.st_gid in groups else stat.S_IXOTH):
            return None
    return user


def resolve(source: Source, ref: str) -> str:
    """The commit a ref names in a repository of this machine. Raises UsageError, naming near branches."""
    git = source.git
    found = git.attempt(*_VERIFY, f"{ref}^{{commit}}")
    need_one(ref, b"is ambiguous" not in found.err)
    commit = found.out.decode("ascii", "replace").strip()
    if not found.code and _ID.fullmatch(commit):
        return commit
    if b"not a git repository" in found.err:
        raise GitFault(f"{source.shown} cannot be read", why=found.why)
    there = git.attempt(*_VERIFY, ref).out.decode("ascii", "replace").strip()
    if there and not _ID.fullmatch(ref) and git.attempt("cat-file", "-t", there).code:
        raise GitFault(f"{ref} of {source.shown} cannot be read", why=found.why, next="run `git fsck` there")
    names = git.run("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/tags", "refs/remotes")
    known = os.fsdecode(names).split()
    if not known and not git.run("rev-list", "-n1", "--all"):
        raise no_commits(source)
    raise unknown(source, ref, known)


def need_one(ref: str, one: bool) -> None:
    """Raise UsageError for a name that a tag and a branch have: whoever may push a tag would choose what it means."""
    if not (one or _ID.fullmatch(ref)):
        raise UsageError(
            f"{ref!r} names several things", next="say which: refs/heads/..., refs/remotes/..., refs/tags/..."
        )


def no_commits(source: Source) -> UsageError:
    """The repository is empty."""
    return UsageError(f"{source.shown} has no commits yet", next="make a first commit")


def unknown(source: Source, ref: str, names: Iterable[str]) -> UsageError:
    """There is no such ref; the nearest names are said."""
    known = list(islice(dict.fromkeys(names), _NAMES))
    near = difflib.get_close_matches(ref, known, n=3, cutoff=0.5) or known[:3]
    return UsageError(f"{source.shown} has no commit named {ref!r}", next=f"did you mean {', '.join(near)}?")


def remote_refs(git: Git, source: Source, *patterns: str) -> dict[str, str]:
    """What a URL advertises: full ref name (`HEAD` and peeled `…^{}` too) to object id."""
    done = git.attempt("ls-remote", "--quiet", "--", source.url, *patterns)
    if done.code:
        raise remote_fault(f"cannot read {source.shown}", done)
    pairs = (line.split("\t", 1) for line in os.fsdecode(done.out).splitlines())
    return {name: oid for oid, name in pairs}


def remote_fault(what: str, done: Done) -> HarnessError:
    """The error of a git that could not do it over the wire, with no secret in it."""
    said = done.err.decode("utf-8", "replace")
    for marks, kind, next_ in _WIRE_FAULTS:
        if hit := re.search(rf".*({marks}).*", said, re.IGNORECASE):
            why = re.sub(r"^(\w+: )*", "", hit[0].strip())
            return kind(what, why=masked(why)[:300], next=next_)
    return GitFault(what, why=masked(done.why), next="check the network and the server, then run again")


def choose(refs: dict[str, str], ref: str) -> str | None:
    """The full name that a short one means among advertised refs; an object id is itself. Raises UsageError."""
    if _ID.fullmatch(ref):
        return ref
    tried = (ref, f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"refs/heads/{ref.removeprefix('origin/')}")
    found = [name for name in dict.fromkeys(tried) if name in refs]
    need_one(ref, len(found) < 2)
    return found[0] if found else None


def shallow_ends(git: Git) -> set[str]:
    """Commits at which this repository's history is cut."""
    path = Path(git.line("rev-parse", "--path-format=absolute", "--git-path", "shallow"))
    try:
        return set(path.read_text("ascii").split())
    except FileNotFoundError:
        return set()
