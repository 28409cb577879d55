"""Images without Python: execd.sh as process 1, and this class beside it, which answers as execd.py would.

What execd.py does inside (capping, deadlines, files) is done here, with pieces of shell that run while nothing else
lives in the container. It takes bash, git and the usual small programs (coreutils or busybox)."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from typing import Any, cast

from agent_harness.errors import SandboxLost
from agent_harness_sandbox.channel import Channel
from agent_harness_sandbox.execd import OUTPUT, Folder, Output

Answer = tuple[dict[str, Any], bytes]

MAX_INLINE = 8 << 10
"""Longest script sent as a word: process 1 reads its line byte by byte."""
NONCE = 32
STOP_S = 12
HELP_S = 60.0
KEPT_IN_MEMORY = 1 << 20
PLAIN = re.compile(rb"[A-Za-z0-9_./:=@%+,-]+")
SAFE = frozenset(range(32, 127)) - set(b"'\\")
FAULTS = {
    40: (-1, "is or passes through a symbolic link"),
    41: (-1, "is not a regular file"),
    42: (-1, "is larger than the limit"),
    43: (errno.EACCES, "Permission denied"),
    44: (errno.ENOENT, "No such file or directory"),
    45: (errno.EROFS, "Read-only file system"),
    46: (errno.ENOSPC, "No space left on device"),
}
"""What a piece of shell ends with, as execd.py would say it."""


def server() -> str:
    """The text of process 1."""
    return resources.files("agent_harness_sandbox").joinpath("execd.sh").read_text()


class Spool:
    """A whole output on the host, until it is put into a file inside: what `execd.Output` needs of a folder."""

    def __init__(self, most: int) -> None:
        self._most, self._left = most, most
        self.file = tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY)  # noqa: SIM115 - closed with the object

    def begin(self, so_far: bytes, data: bytes) -> None:
        """The first bytes."""
        self.append(so_far)
        self.append(data)

    def append(self, data: bytes) -> None:
        """Keep what has room. A full disk only means that nothing is kept."""
        data = data[: self._left]
        self._left -= len(data)
        try:
            self.file.write(data)
        except OSError:
            self._left, self._most = 0, 0

    def bytes(self) -> bytes:
        """All that was kept."""
        self.file.seek(0)
        return self.file.read(self._most - self._left)


class ShellChannel:
    """Has a channel's `ask` and `close`; a lost sandbox is the same here as there."""

    def __init__(self, channel: Channel, poke: Callable[[], None]) -> None:
        """`poke` sends USR1 to process 1 by way of the engine: the command that runs is to end."""
        self._channel, self._poke = channel, poke
        self._heard = 0.0
        self._pending = bytearray()
        self._sink: Callable[[bytes], None] = _nobody
        self._workspace, self._save = "/workspace", 16 << 20
        self._hello = False
        self._kept: list[tuple[str, int]] = []
        self._count = 0

    def close(self) -> None:
        """Close the stream."""
        self._channel.close()

    def ask(self, head: dict[str, Any], body: bytes, *, seconds: float, most: int) -> Answer:
        """One request and its reply, as execd.py has them."""
        del seconds, most  # both are held here: the deadline by `poke`, the size by `Output` and by `limit`
        if not self._hello:
            self._greet()
        ops = {"setup": self._setup, "run": self._run, "read": self._read, "write": self._write, "ping": self._ping}
        try:
            return ops[head["op"]](head, body)
        except ValueError as fault:
            return {"fault": -1, "why": str(fault)}, b""

    # --- the stream ---

    def _greet(self) -> None:
        """Wait for process 1; what it says instead, on its stderr, is why it could not start."""
        until = time.monotonic() + HELP_S
        while (line := self._channel.line()) is None:
            if time.monotonic() > until:
                raise SandboxLost("the sandbox broke off", why="its exec server did not answer in time")
            self._channel.fill()
        if line != "hello":
            raise SandboxLost("the sandbox broke off", why=f"its exec server said {line[:200]!r}")
        self._channel.other = self._hear
        self._hello = True

    def _hear(self, part: bytes) -> None:
        """Everything but the last bytes, which may be the nonce."""
        self._heard = time.monotonic()
        self._pending += part
        if len(self._pending) > 2 * NONCE:
            self._sink(bytes(self._pending[:-NONCE]))
            del self._pending[:-NONCE]

    def _begin(self, words: list[str | bytes], body: bytes, sink: Callable[[bytes], None]) -> bytes:
        nonce = secrets.token_hex(NONCE // 2)
        self._pending.clear()
        self._sink = sink
        line = " ".join([str(words[0]), nonce, *map(_word, words[1:])])
        self._channel.send(line.encode("ascii") + b"\n" + body)
        return nonce.encode()

    def _wait(self, nonce: bytes, until: Callable[[], float]) -> str | None:
        """The answer to a request; None at a deadline that may move on."""
        line = None
        while True:
            line = line or self._channel.line()
            if line is not None and self._pending.endswith(nonce):
                self._sink(bytes(self._pending[: -len(nonce)]))
                self._pending.clear()
                self._sink = _nobody
                return line
            left = until() - time.monotonic()
            if left <= 0:
                return None
            self._channel.fill(left)

    def _help(self, *words: str, body: bytes = b"") -> tuple[int, bytes]:
        """The exit code and the output of one of process 1's own helpers."""
        out = bytearray()
        nonce = self._begin(["help", str(len(body)), *words], body, out.extend)
        until = time.monotonic() + HELP_S
        line = self._wait(nonce, lambda: until)
        if line is None or not line.isdigit():
            raise SandboxLost("the sandbox broke off", why=f"its exec server said {line!r}")
        return int(line), bytes(out)

    # --- operations ---

    def _ping(self, head: dict[str, Any], _body: bytes) -> Answer:
        until = time.monotonic() + STOP_S
        nonce = self._begin(["sweep"], b"", _nobody)
        if self._wait(nonce, lambda: until) != "swept":
            return {"broken": "a process of the last command cannot be ended"}, b""
        return {"pong": head.get("nonce")}, b""

    def _setup(self, head: dict[str, Any], body: bytes) -> Answer:
        if body:
            raise ValueError("sandbox.allow needs python3 in the image")
        self._workspace, self._save = head["workspace"], int(head["save"])
        _, out = self._help("setup", self._workspace, *head["places"])
        status_text, _, rest = out.decode("utf-8", "replace").partition("==\n")
        interfaces, _, found_text = rest.partition("==\n")
        status = dict(line.split(":\t", 1) for line in status_text.splitlines() if ":\t" in line)
        found = dict(line.split("=", 1) for line in found_text.splitlines() if "=" in line)
        if "open" in found:
            raise ValueError("process 1 can be read and traced by what runs beside it")
        ids = " ".join(status.get(name, "0") for name in ("Uid", "Gid", "Groups")).split()
        return {
            "ids": [int(one) for one in ids],
            "status": {key: status.get(key, "") for key in ("CapEff", "CapBnd", "CapPrm", "NoNewPrivs", "Seccomp")},
            "interfaces": [line.split(":")[0].strip() for line in interfaces.splitlines() if ":" in line],
            "tools": {tool: found.get(tool, "") for tool in ("bash", "git")},
            "places": {place: _errno(found.get(place, "unknown")) for place in head["places"]},
            "usable": "usable" in found,
        }, b""

    def _read(self, head: dict[str, Any], _body: bytes) -> Answer:
        code, out = self._help("get", str(head["limit"]), *self._steps(head["path"]))
        return (_fault(code), b"") if code else ({}, out)

    def _write(self, head: dict[str, Any], body: bytes) -> Answer:
        code, _ = self._help("put", f".{secrets.token_hex(8)}.tmp", *self._steps(head["path"]), body=body)
        return _fault(code) if code else {}, b""

    def _steps(self, path: str) -> list[str]:
        """The paths of a file beneath the workspace and of the folders on the way to it, the outermost first."""
        root = self._workspace
        whole = posixpath.normpath(path) if posixpath.isabs(path) else f"{root}/{path}"
        names = [name for name in whole.removeprefix(root).split("/") if name not in {"", "."}]
        if not whole.startswith(f"{root}/") or not names or ".." in names or "\0" in path:
            raise ValueError(f"is not a file name beneath {root}")
        return [f"{root}/{'/'.join(names[: end + 1])}" for end in range(len(names))]

    # --- commands ---

    def _run(self, head: dict[str, Any], script: bytes) -> Answer:
        begun = self._heard = time.monotonic()
        spool = Spool(max(self._save // 2, 1))
        output = Output(int(head["keep"]), cast("Folder", spool), head.get("save"))
        deadline, idle = begun + float(head["timeout"]), float(head["idle"])

        env = [f"{name}={value}" for name, value in head["env"].items()]
        body = b"exec 9<&-;" + script if len(script) > MAX_INLINE or b"\0" in script else b""
        nonce = self._begin(["run", head["workdir"], str(len(body)), b"" if body else script, *env], body, output.feed)
        line = self._wait(nonce, lambda: min(deadline, self._heard + idle) if idle else deadline)
        end = ""
        if line is None:
            end = "timeout" if time.monotonic() >= deadline else "idle"
            line = self._stopped(nonce)
        state, _, code = (line or "broken").partition(" ")
        if state == "broken":
            return {"broken": "a process of the last command cannot be ended"}, b""
        first, last = output.ends()
        kinds = {"killed": "out_of_memory", "stopped": end or "signalled"}
        end = kinds.get(state) or ("signalled" if 128 < int(code) <= 128 + 64 else "exited")
        return {
            "end": end,
            "code": 124 if end in {"timeout", "idle"} else int(code),
            "head": len(first),
            "total": output.total,
            "seconds": time.monotonic() - begun,
            "saved": self._keep(spool.bytes()) if output.saved else "",
        }, first + last

    def _stopped(self, nonce: bytes) -> str | None:
        """Have the command ended. The poke may come just before process 1 waits for it, so there are several."""
        for _ in range(STOP_S):
            self._poke()
            until = time.monotonic() + 1
            if line := self._wait(nonce, lambda until=until: until):  # type: ignore[misc]
                return line
        return None

    def _keep(self, data: bytes) -> str:
        """Put a whole output into a file inside; the oldest go first. Empty where it does not fit."""
        self._count += 1
        gone = []
        while self._kept and sum(size for _, size in self._kept) > self._save - self._save // 2:
            gone.append(self._kept.pop(0)[0])
        path = f"{OUTPUT}/{self._count:04d}.txt"
        code, _ = self._help("keep", path, *gone, body=data)
        if code:
            return ""
        self._kept.append((path, len(data)))
        return path


def _nobody(_: bytes) -> None:
    """Takes what nobody waits for, and holds on to no file of the last command."""


def _word(text: str | bytes) -> str:
    """One shell word in plain ASCII. Raises ValueError for text that has no bytes, such as a lone surrogate."""
    raw = os.fsencode(text)
    if PLAIN.fullmatch(raw):
        return raw.decode()
    return "$'" + "".join(chr(one) if one in SAFE else f"\\{one:03o}" for one in raw) + "'"


def _fault(code: int) -> dict[str, Any]:
    number, why = FAULTS.get(code, (-1, f"cannot be used ({code})"))
    return {"fault": number, "why": why}


def _errno(seen: str) -> str:
    """A try to write as `execd.py` says it."""
    known = {"": "yes", "Read-only file system": "EROFS", "Permission denied": "EACCES"}
    return known.get(seen.strip(), seen)
