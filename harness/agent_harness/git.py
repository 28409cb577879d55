"""The one way this project starts git: hardened, bytes in and out, with a deadline.

Nothing of the machine's or the user's git configuration counts, no hook, filter, pager, prompt or other program
that a configuration names is started, no object is fetched in passing, and a path is never taken for a pattern.
Only `network=True` (fetch from and push to a URL, run in our own repository) sees the user's own git
configuration, SSH agent and HOME, since the credentials live there; hooks stay off and `ext::` stays closed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent_harness.errors import GitFault, UsageError

QUICK_S = 120.0
"""Deadline of a command that only looks or writes a little."""
LONG_S = 3600.0
"""Deadline of a command that moves history."""
CHUNK = 1 << 20
Env = Mapping[str, str]

IDENTITY = ("agent-harness", "agent-harness@localhost")

_FLAGS = (
    "core.hooksPath=/dev/null core.fsmonitor=false core.attributesFile=/dev/null core.excludesFile=/dev/null "
    "core.autocrlf=false core.fileMode=true core.symlinks=true core.ignoreCase=false core.protectHFS=true "
    "core.protectNTFS=true core.untrackedCache=false core.sparseCheckout=false core.splitIndex=false "
    "core.alternateRefsCommand=false core.pager=cat core.editor=false gc.auto=0 maintenance.auto=false "
    "commit.gpgSign=false log.showSignature=false diff.ignoreSubmodules=all submodule.recurse=false "
    "fetch.recurseSubmodules=false protocol.ext.allow=never core.warnAmbiguousRefs=true"
)
_CLOSED = (
    "HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1"
)
_ALWAYS = (
    "LC_ALL=C GIT_ATTR_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null GIT_LITERAL_PATHSPECS=1 "
    "GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 "
    f"GIT_AUTHOR_NAME={IDENTITY[0]} GIT_AUTHOR_EMAIL={IDENTITY[1]} "
    f"GIT_COMMITTER_NAME={IDENTITY[0]} GIT_COMMITTER_EMAIL={IDENTITY[1]}"
)
_USERS_OWN = re.compile(
    r"HOME|USER|LOGNAME|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|SSH_AUTH_SOCK|GIT_ASKPASS|GIT_(SSH|SSL|CONFIG)(_\w+)?"
    r"|SSL_CERT_(FILE|DIR)|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY"
)
"""Variables by which a user's keys, certificates, proxies and git settings are found."""
_NETWORK = " http.lowSpeedLimit=1 http.lowSpeedTime=120"
"""A server that says nothing any more is not waited for to the end."""
_REASONS = (
    ("No space left on device", "the disk is full", "free some space and try again"),
    ("Disk quota exceeded", "the disk quota is used up", "free some space and try again"),
    ("Read-only file system", "the file system is read-only", "make it writable"),
    ("Permission denied", "permission denied", "check who owns it and who may write there"),
    ("insufficient permission", "permission denied", "check who owns it and who may write there"),
    (".lock': File exists", "another git process holds a lock", "wait for it, or remove the lock it left behind"),
)


@dataclass(frozen=True, slots=True)
class User:
    """Who a git process runs as, when root works in somebody else's repository: files stay the owner's."""

    uid: int
    gid: int

    @property
    def groups(self) -> list[int]:
        """The user's supplementary groups; none where the system does not know the user."""
        try:
            return os.getgrouplist(pwd.getpwuid(self.uid).pw_name, self.gid)
        except KeyError:
            return [self.gid]


@dataclass(frozen=True, slots=True)
class Done:
    """A finished git process."""

    args: tuple[str, ...]
    code: int
    out: bytes
    err: bytes

    @property
    def why(self) -> str:
        """What git said in one line: its last `fatal:` or `error:`."""
        lines = self.err.decode("utf-8", "backslashreplace").strip().splitlines()
        said = [n for n, line in enumerate(lines) if line.startswith(("fatal: ", "error: ", "remote: fatal: "))]
        told = lines[said[-1] if said else -1 :] or [f"exit code {self.code}"]
        first = told[0].removeprefix("remote: ").split(": ", 1)[-1]
        return " ".join([first, *(told[1:] if first.endswith(":") else ())])[:300]

    def fault(self) -> GitFault:
        """The error of a process that failed, with the known causes in plain words."""
        text = self.err.decode("utf-8", "replace")
        words, hint = next(((w, h) for mark, w, h in _REASONS if mark in text), ("", ""))
        return GitFault(f"{_named(self.args)} failed", why=f"{words} ({self.why})" if words else self.why, next=hint)


class Git:
    """Git on one repository. `git_dir` None means: find it from `cwd` (only to look where one is)."""

    def __init__(
        self,
        git_dir: Path | None,
        *,
        work_tree: Path | None = None,
        index: Path | None = None,
        cwd: Path | None = None,
        user: User | None = None,
        network: bool = False,
    ) -> None:
        self.git_dir, self.user, self._network = git_dir, user, network
        self._cwd = cwd or work_tree or Path("/")
        places = {"GIT_DIR": git_dir, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
        self._places = {name: str(place) for name, place in places.items() if place is not None}

    def attempt(
        self, *args: str, stdin: bytes | IO[bytes] = b"", timeout_s: float = QUICK_S, env: Env | None = None
    ) -> Done:
        """Run git and give back how it ended. Raises GitFault only where it could not run or passed its deadline."""
        data, source = (stdin, subprocess.PIPE) if isinstance(stdin, bytes) else (None, stdin)
        with self._running(args, source, subprocess.PIPE, timeout_s, env) as process:
            try:  # a child that left the group, as a connection kept open does, may hold the streams for ever
                out, err = process.communicate(data, timeout_s + 1)
            except subprocess.TimeoutExpired as held:
                raise _late(args, timeout_s) from held
        return Done(args, process.returncode, out, err)

    def run(
        self, *args: str, stdin: bytes | IO[bytes] = b"", timeout_s: float = QUICK_S, env: Env | None = None
    ) -> bytes:
        """Run git and give back what it wrote. Raises GitFault where it failed."""
        done = self.attempt(*args, stdin=stdin, timeout_s=timeout_s, env=env)
        if done.code:
            raise done.fault()
        return done.out

    def line(self, *args: str, stdin: bytes = b"", env: Env | None = None) -> str:
        """What git wrote, as one stripped line of text."""
        return os.fsdecode(self.run(*args, stdin=stdin, env=env)).strip()

    @contextlib.contextmanager
    def stream(self, *args: str, stdin: bytes, timeout_s: float = LONG_S) -> Generator[IO[bytes]]:
        """Git's output as a file to read while it runs. Raises GitFault at the end where git failed."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
            given.write(stdin)
            given.seek(0)
            with self._running(args, given, errors, timeout_s) as process:
                assert process.stdout
                yield process.stdout
                process.wait()
            if process.returncode:
                errors.seek(0)
                raise Done(args, process.returncode, b"", errors.read()).fault()

    def pipe(self, args: tuple[str, ...], stdin: bytes, into: Git, then: tuple[str, ...]) -> bytes:
        """Run `args` here and feed what it writes to `then` there; gives back what `then` wrote."""
        last = Done(then, -1, b"", b"")
        try:
            with self.stream(*args, stdin=stdin) as out:
                last = into.attempt(*then, stdin=out, timeout_s=LONG_S)
        except GitFault as fault:
            # Where `then` gave up first, it knows why. Where `args` failed, `then` failed for want of its output.
            if not last.code or not ("Broken pipe" in fault.why or fault.why == f"exit code {-signal.SIGPIPE}"):
                raise
        if last.code:
            raise last.fault()
        return last.out

    @contextlib.contextmanager
    def _running(
        self,
        args: tuple[str, ...],
        stdin: int | IO[bytes],
        stderr: int | IO[bytes],
        timeout_s: float,
        env: Env | None = None,
    ) -> Generator[subprocess.Popen[bytes]]:
        """A git that has ended with its children however the block ends, and at its deadline at the latest: whatever
        the block waits for then, it raises GitFault."""
        settings = _FLAGS + _NETWORK if self._network else _FLAGS
        flags = [part for setting in settings.split() for part in ("-c", setting)]
        if self.git_dir is None:
            flags += ["-c", "safe.directory=*"]
        try:
            process = subprocess.Popen(
                ["git", *flags, *args],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=CHUNK,
                cwd=self._cwd,
                env={**self._environment(), **(env or {})},
                start_new_session=True,  # no terminal to prompt on, and one group to end
                user=self.user.uid if self.user else None,
                group=self.user.gid if self.user else None,
                extra_groups=self.user.groups if self.user else None,
            )
        except OSError as error:
            if isinstance(error, FileNotFoundError) and error.filename == "git":
                raise GitFault("git was not found", why="it is not on PATH", next="install git") from error
            raise GitFault(f"cannot run git in {self._cwd}", why=str(error.strerror)) from error
        except ValueError as error:  # a NUL byte, or a character that no file name can have
            raise UsageError(f"{_named(args)} was not run", why=f"{error}: {args[-1][:80]!r}") from error
        late = threading.Event()

        def end() -> None:
            if process.poll() is None:
                late.set()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        try:
            timer.start()
            yield process
        finally:
            timer.cancel()
            passed = late.is_set()
            end()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()
            if passed:
                raise _late(args, timeout_s)

    def send(self, commit: str, known: list[str], into: Git, *then: str) -> None:
        """Give `then`, run on another repository, a commit with its history as a pack; what that repository has of
        the `known` commits is left out."""
        wanted = "".join(f"{line}\n" for line in (commit, *(f"^{one}" for one in known)))
        pack = ("pack-objects", "--quiet", "--revs", "--thin", "--stdout", "--delta-base-offset", "--compression=1")
        self.pipe(pack, wanted.encode(), into, then)

    def commits(self, ids: bytes) -> list[str]:
        """Those of some ids, one a line, that are commits here."""
        found = self.run("cat-file", "--batch-check", stdin=ids).decode("ascii").splitlines()
        return [line.split()[0] for line in found if line.split()[1] == "commit"]

    def _environment(self) -> dict[str, str]:
        env = {"PATH": os.environ.get("PATH", os.defpath), **_variables(_ALWAYS), **self._places}
        if self._network:
            own = {name: value for name, value in os.environ.items() if _USERS_OWN.fullmatch(name)}
            return {**own, **env, "GIT_ALLOW_PROTOCOL": "http:https:ssh:git"}
        return {**env, **_variables(_CLOSED)}


def _named(args: tuple[str, ...]) -> str:
    """A git command by its verb, for people."""
    return " ".join(["git", *(arg for arg in args if not arg.startswith("-") and "=" not in arg)][:2])


def _late(args: tuple[str, ...], timeout_s: float) -> GitFault:
    return GitFault(f"{_named(args)} was stopped", why=f"it did not end within {timeout_s:.0f} s")


def _variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


def blobs(git: Git, ids: list[str]) -> Iterator[Iterator[bytes]]:
    """The contents of objects, in the order asked, each as chunks; chunks left unread are skipped."""
    if not ids:
        return
    with git.stream("cat-file", "--batch", "--buffer", stdin="".join(f"{i}\n" for i in ids).encode()) as out:
        for wanted in ids:
            head = out.readline().split()
            if len(head) != 3 or head[1] != b"blob":
                raise GitFault(f"object {wanted} cannot be read", why=b" ".join(head).decode("ascii", "replace"))
            chunks = _chunks(out, int(head[2]))
            yield chunks
            for _ in chunks:
                pass
            out.read(1)


def _chunks(out: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        data = out.read(min(size, CHUNK))
        if not data:
            raise GitFault("git cat-file failed", why="it ended in the middle of an object")
        size -= len(data)
        yield data
