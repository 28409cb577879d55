"""The exec server: process 1 of every sandbox, and the only thing in it that the harness believes.

The host sends this text over the attached stream and then speaks frames with it: two lengths (`!II`), that much
JSON, that much raw body, both ways. It runs with `python3 -I -S` from 3.9 on, with the standard library only, and
imports nothing of ours. Why its answers can be believed: the two file descriptors of the stream are private
(moved away from 0 and 1, closed on exec), and the process is not dumpable, so that a child with the same uid can
neither trace it nor open `/proc/1/fd` or `/proc/1/mem`. As process 1 it is immune to signals from inside, inherits
every orphan, and `kill(-1)` of it ends everything else in the container at once, escaped sessions included.
"""

# pathlib would cost a fifth of the start:
# ruff: noqa: PTH103, PTH108, PTH117, PTH118, PTH123
from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import stat
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]
    Answer = tuple[dict[str, Any], bytes]

FRAME = struct.Struct("!II")
CHUNK = 1 << 18
MAX_ARG = 100_000
"""Longest script given as an argument: the kernel takes 128 KiB for one."""
OUTPUT = "/tmp/.harness-output"  # noqa: S108 (the container's own tmpfs)
SWEEP_S = 5.0
F_SETPIPE_SZ = 1031
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD]


class Broken(Exception):
    """This sandbox cannot be trusted to run another command."""


class Output:
    """One command's output: the first fifth and the last four fifths of `keep` bytes, all in a file past `save`."""

    def __init__(self, keep: int, folder: Folder, save: int | None = None) -> None:
        self.keep, self.folder, self.save = keep, folder, keep if save is None else min(save, keep)
        self.head_size = keep // 5
        self.tail_size = keep - self.head_size
        self.total = 0
        self.head = bytearray()
        self.tail = bytearray()
        self.saved = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes; memory stays below three times `keep` and a chunk."""
        self.total += len(data)
        if self.saved:
            self.folder.append(data)
        elif self.total > self.save:
            self.saved = True
            self.folder.begin(bytes(self.head + self.tail), data)
        room = self.head_size - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > 2 * self.tail_size + CHUNK:
            del self.tail[: len(self.tail) - self.tail_size]

    def ends(self) -> tuple[bytes, bytes]:
        """Head and tail; all in the head when nothing was cut."""
        if self.total <= self.keep:
            return bytes(self.head + self.tail), b""
        return bytes(self.head), bytes(self.tail[max(0, len(self.tail) - self.tail_size) :])


class Folder:
    """Whole outputs of earlier commands, within a quarter of /tmp; the oldest go first."""

    def __init__(self, allowed: int, root: str = OUTPUT) -> None:
        self.allowed, self.each, self.root = allowed, max(allowed // 2, 1), root
        self.kept: list[tuple[str, int]] = []
        self.count = 0
        self.fd, self.path, self.written = -1, "", 0

    def begin(self, so_far: bytes, data: bytes) -> None:
        """Open the next file. A full or spoilt /tmp only means that nothing is kept."""
        self.count += 1
        self.path, self.written = f"{self.root}/{self.count:04d}.txt", 0
        while self.kept and sum(size for _, size in self.kept) > self.allowed - self.each:
            name, _ = self.kept.pop(0)
            with contextlib.suppress(OSError):
                os.unlink(name)
        try:
            os.makedirs(self.root, 0o755, exist_ok=True)
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError:
            self.fd, self.path = -1, ""
        self.append(so_far)
        self.append(data)

    def append(self, data: bytes) -> None:
        """Write until this file's share is used up."""
        data = data[: self.each - self.written]
        try:
            while self.fd >= 0 and data:
                done = os.write(self.fd, data)
                self.written += done
                data = data[done:]
        except OSError:
            self._close()

    def finish(self) -> str:
        """The file's path, empty when there is none."""
        self._close()
        path, self.path = self.path, ""
        if path:
            self.kept.append((path, self.written))
        return path if self.written else ""

    def _close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Server:
    """The state of one sandbox: the stream, the wake-up pipe for ended children, the counters."""

    def __init__(self, stream_in: int, stream_out: int) -> None:
        self.stream_in, self.stream_out = stream_in, stream_out
        self.wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.score = _open_or_none("/proc/self/oom_score_adj", os.O_WRONLY)
        self.oom = [fd for fd in map(_open_or_none, OOM_COUNTERS) if fd is not None]
        self.bash = _which("bash") or "/bin/bash"
        self.workspace = "/workspace"
        self.folder = Folder(16 << 20)

    # --- frames ---

    def serve(self) -> None:
        """Answer requests, one at a time, until the host hangs up."""
        ops = {"setup": self.setup, "run": self.run, "read": self.read, "write": self.write, "ping": self.ping}
        while True:
            head_size, body_size = FRAME.unpack(self._take(FRAME.size))
            request = json.loads(self._take(head_size))
            body = self._take(body_size)
            try:
                head, answer = ops[request["op"]](request, body)
            except OSError as fault:
                head, answer = {"fault": fault.errno or 0, "why": fault.strerror or str(fault)}, b""
            except ValueError as fault:
                head, answer = {"fault": -1, "why": str(fault)}, b""
            except Broken as fault:
                head, answer = {"broken": str(fault)}, b""
            self.send(head, answer)

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """One whole frame."""
        text = json.dumps(head).encode()
        data = memoryview(FRAME.pack(len(text), len(body)) + text + body)
        while data:
            data = data[os.write(self.stream_out, data) :]

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = os.read(self.stream_in, min(size - len(data), CHUNK))
            if not chunk:
                sys.exit(0)  # the host is gone; ending process 1 ends everything
            data += chunk
        return bytes(data)

    # --- small operations ---

    def ping(self, request: Request, _body: bytes) -> Answer:
        """The request back, when nothing else is alive."""
        self.sweep()
        return {"pong": request.get("nonce")}, b""

    def setup(self, request: Request, body: bytes) -> Answer:
        """Take the settings, make HOME, start the relay (its text, if any), and say what this sandbox really is."""
        if body:
            exec(compile(body + b"\nserve()\n", "relay", "exec"), {})  # noqa: S102 - ours, over the private stream
        self.workspace = request["workspace"]
        self.folder = Folder(int(request["save"]))
        home = os.environ.get("HOME", "/tmp")  # noqa: S108
        os.makedirs(home, 0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(os.path.join(home, ".gitconfig"), "x") as file:
            file.write("[user]\n\tname = agent\n\temail = agent@localhost\n")
        with open("/proc/self/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        with open("/proc/net/dev") as file:
            interfaces = [line.split(":")[0].strip() for line in file if ":" in line]
        return {
            "ids": [os.getuid(), os.getgid(), *os.getgroups()],
            "status": {key: status.get(key, "") for key in ("CapEff", "CapBnd", "CapPrm", "NoNewPrivs", "Seccomp")},
            "interfaces": interfaces,
            "tools": {name: _which(name) for name in ("bash", "git")},
            "places": {place: _writable(place) for place in request["places"]},
            "usable": os.access(self.workspace, os.R_OK | os.X_OK),
        }, b""

    # --- files ---

    def read(self, request: Request, _body: bytes) -> Answer:
        """A regular file beneath the workspace, whole, at most `limit` bytes."""
        limit = int(request["limit"])
        folder, name = self._walk(request["path"], make=False)
        try:
            fd = _open_plain(name, os.O_RDONLY | os.O_NONBLOCK, folder)
        finally:
            os.close(folder)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ValueError("is not a regular file")
            data = bytearray()
            while len(data) <= limit and (chunk := os.read(fd, CHUNK)):
                data += chunk
        finally:
            os.close(fd)
        if len(data) > limit:
            raise ValueError(f"is larger than {limit} bytes")
        return {}, bytes(data)

    def write(self, request: Request, body: bytes) -> Answer:
        """Put `body` in a file's place at once (write beside it, rename), with the mode it had."""
        folder, name = self._walk(request["path"], make=True)
        beside = f".{os.urandom(8).hex()}.tmp"
        try:
            mode = _mode(name, folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(body)
                os.fchmod(file.fileno(), mode)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
        finally:
            os.close(folder)
        return {}, b""

    def _walk(self, path: str, *, make: bool) -> tuple[int, str]:
        """An open folder beneath the workspace and the last name. One open a step and no link on the way, so that
        nothing that moves meanwhile can lead out."""
        if os.path.isabs(path):
            if os.path.commonpath([os.path.normpath(path), self.workspace]) != self.workspace:
                raise ValueError(f"is outside {self.workspace}")
            path = os.path.relpath(os.path.normpath(path), self.workspace)
        names = [name for name in path.split("/") if name not in {"", "."}]
        if not names or ".." in names or "\0" in path:
            raise ValueError(f"is not a file name beneath {self.workspace}")
        flags = os.O_RDONLY | os.O_DIRECTORY
        folder = os.open(self.workspace, flags | os.O_CLOEXEC)
        for name in names[:-1]:
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=folder)
                inner = _open_plain(name, flags, folder)
            finally:
                os.close(folder)
            folder = inner
        return folder, names[-1]

    # --- commands ---

    def run(self, request: Request, body: bytes) -> Answer:
        """Run one script to its end, its deadline, or its silence; then end whatever it left behind."""
        begun = time.monotonic()
        output = Output(int(request["keep"]), self.folder, request.get("save"))
        kills = self._kills()
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, True)
        with contextlib.suppress(OSError):
            fcntl.fcntl(write, F_SETPIPE_SZ, 1 << 20)
        end, code = "exited", 126
        try:
            child = self._spawn(request, body, write)
        except (OSError, ValueError) as fault:
            child = 0
            output.feed(f"cannot start in {request['workdir']}: {fault}\n".encode("utf-8", "replace"))
        finally:
            os.close(write)
        if child:
            end, code = self._watch(child, read, output, begun + float(request["timeout"]), request)
            self.sweep()
            _drain(read, output)
        os.close(read)
        if kills is not None and self._kills() != kills:
            end = "out_of_memory"
        head, tail = output.ends()
        return {
            "end": end,
            "code": code,
            "head": len(head),
            "total": output.total,
            "seconds": time.monotonic() - begun,
            "saved": self.folder.finish() if output.saved else "",
        }, head + tail

    def _spawn(self, request: Request, script: bytes, write: int) -> int:
        """Start bash in its own session. A script too long for an argument is read from an anonymous file."""
        env = dict(os.environb)
        env.update({os.fsencode(name): os.fsencode(value) for name, value in request["env"].items()})
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((self.null, write, write))]
        argv: list[bytes] = [b"bash", b"-c", script]
        source = -1
        if len(script) > MAX_ARG or b"\0" in script:
            source = os.memfd_create("script")
            with open(os.dup(source), "wb") as file:
                file.write(b"exec 9<&-;" + script)
            os.lseek(source, 0, os.SEEK_SET)
            actions.append((os.POSIX_SPAWN_DUP2, source, 9))
            argv[2] = b". /proc/self/fd/9"
        try:
            os.chdir(request["workdir"])
            self._score(1000)  # the kernel's victim is the command, never this process
            return os.posix_spawn(
                self.bash, argv, env, file_actions=actions, setsid=True, setsigdef=SIGNALS, setsigmask=[]
            )
        finally:
            self._score(0)
            os.chdir("/")
            if source >= 0:
                os.close(source)

    def _watch(self, child: int, read: int, output: Output, deadline: float, request: Request) -> tuple[str, int]:
        """Collect output until the child ends or may not go on."""
        idle = float(request["idle"])
        poll = select.poll()
        poll.register(read, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        poll.register(self.stream_in, 0)
        heard = time.monotonic()
        while True:
            now = time.monotonic()
            until = min(deadline, heard + idle) if idle else deadline
            if now >= until:
                return ("timeout" if now >= deadline else "idle"), 124
            for fd, event in poll.poll((until - now) * 1000 + 1):
                if fd == self.stream_in and event & (select.POLLHUP | select.POLLERR):
                    sys.exit(0)
                elif fd == read:
                    data = os.read(read, CHUNK)
                    heard = time.monotonic()
                    output.feed(data)
                    if not data:
                        poll.unregister(read)
                elif fd == self.wake and (status := self._reap(child)) is not None:
                    code = os.waitstatus_to_exitcode(status)
                    return ("exited", code) if code >= 0 else ("signalled", 128 - code)

    def _reap(self, child: int) -> int | None:
        """Collect everything that ended, orphans too; the child's status if it was among them."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.wake, 4096)) == 4096:
                pass
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    found = status
        return found

    def sweep(self) -> None:
        """End every other process of the container and wait until it is gone. Raises Broken if one stays."""
        if os.getpid() != 1:
            raise Broken("not process 1: a sweep would hit the host")
        until = time.monotonic() + SWEEP_S
        while True:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
            self._reap(0)
            if time.monotonic() > until:
                raise Broken("a process of the last command cannot be ended")
            select.select([self.wake], [], [], 0.02)

    def _kills(self) -> int | None:
        """How often the kernel ended a process here for want of memory; None where it does not tell."""
        for fd in self.oom:
            for line in os.pread(fd, 4096, 0).splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        return None

    def _score(self, value: int) -> None:
        if self.score is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self.score, str(value).encode(), 0)


def _drain(read: int, output: Output) -> None:
    """What still stands in the pipe. Every writer is dead, so this ends."""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(read, CHUNK):
            output.feed(data)


def _open_plain(name: str, flags: int, folder: int) -> int:
    """Open one name in an open folder, refusing links."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as fault:
        if fault.errno in {errno.ELOOP, errno.ENXIO} or (fault.errno == errno.ENOTDIR and _is_link(name, folder)):
            what = "a special file" if fault.errno == errno.ENXIO else f"or passes through a symbolic link ({name})"
            raise ValueError(f"is {what}") from fault
        raise


def _is_link(name: str, folder: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _mode(name: str, folder: int) -> int:
    """The mode of the file that is there and may be written, or that of a new one."""
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(old):
        raise ValueError("is a symbolic link" if stat.S_ISLNK(old) else "is not a regular file")
    os.close(_open_plain(name, os.O_WRONLY | os.O_NONBLOCK, folder))  # a read-only file stays one
    return stat.S_IMODE(old)


def _writable(place: str) -> str:
    """`yes` or the name of the error: an unnamed file where there can be one, so that nothing shows."""
    try:
        try:
            os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except OSError as fault:
            if fault.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
                raise
            path = os.path.join(place, f".{os.urandom(8).hex()}.tmp")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.unlink(path)
    except OSError as fault:
        return errno.errorcode.get(fault.errno or 0, str(fault))
    return "yes"


def _open_or_none(path: str, flags: int = os.O_RDONLY) -> int | None:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None


def _which(name: str) -> str:
    for folder in os.environ.get("PATH", "/usr/bin:/bin").split(":"):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    return ""


def main() -> None:
    """Take the stream for ourselves, close the doors, and serve."""
    if os.getpid() != 1:
        sys.exit("execd: runs only as process 1 of a container")
    stream_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 100)
    stream_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 100)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # for process 1 the default is to ignore it
    server = Server(stream_in, stream_out)
    if ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0):  # PR_SET_DUMPABLE
        sys.exit("execd: PR_SET_DUMPABLE was refused")
    os.dup2(server.null, 0)
    os.dup2(server.null, 1)
    server.serve()


if __name__ == "__main__":
    main()
