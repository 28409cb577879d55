"""Frames over a container's attached stream, read with a deadline and an eye on the container."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from typing import Any

from agent_harness.errors import SandboxLost

FRAME = struct.Struct("!II")
MUX = struct.Struct("!BxxxI")
GLANCE_S = 1.0
"""Silence after which the container is looked at: a dying one shows within this, whatever the stream does."""
MAX_HEAD = 1 << 20
MAX_NOISE = 4000


class Channel:
    """One request at a time, one reply each. After any SandboxLost it is not to be used again."""

    def __init__(self, sock: Any, alive: Callable[[], None]) -> None:
        """`sock` is the attach socket; `alive` raises SandboxLost when the container does not run any more."""
        self._sock = getattr(sock, "_sock", sock)
        self._keep = sock  # docker-py closes the connection when its wrapper is collected
        self._alive = alive
        self._sock.settimeout(GLANCE_S)
        self._replies = bytearray()
        self._raw = bytearray()
        self.noise = b""
        """What process 1 wrote to stderr: why it could not start."""

    def send(self, data: bytes, seconds: float = 60.0) -> None:
        """Send raw bytes."""
        until = time.monotonic() + seconds
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view[: 1 << 16]) :]
            except TimeoutError:
                self._alive()
                if time.monotonic() > until:
                    raise self._lost("its exec server takes nothing") from None
            except OSError as fault:
                raise self._lost(str(fault)) from fault

    def ask(self, head: dict[str, Any], body: bytes, *, seconds: float, most: int) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its reply of at most `most` bytes."""
        text = json.dumps(head).encode()
        self.send(FRAME.pack(len(text), len(body)) + text + body)
        return self.receive(seconds=seconds, most=most)

    def receive(self, *, seconds: float, most: int) -> tuple[dict[str, Any], bytes]:
        """The next frame. Raises SandboxLost at the deadline, at the end of the stream, or on nonsense."""
        until = time.monotonic() + seconds
        head_size, body_size = FRAME.unpack(self._take(FRAME.size, until))
        if head_size > MAX_HEAD or body_size > most:
            raise self._lost("its exec server sent a frame that is too long")
        try:
            head = json.loads(self._take(head_size, until))
        except ValueError as fault:
            raise self._lost("its exec server sent nonsense") from fault
        return head, self._take(body_size, until)

    def close(self) -> None:
        """Close the socket; safe to repeat. The answer that it came from goes first: left to the collector, it finds
        its stream closed, and Python 3.13 says so on stderr."""
        for part in (getattr(self._keep, "_response", None), self._keep, self._sock):
            if part is not None:
                part.close()

    def _take(self, size: int, until: float) -> bytes:
        while len(self._replies) < size:
            if time.monotonic() > until:
                raise self._lost("its exec server did not answer in time")
            self._fill()
        data = bytes(self._replies[:size])
        del self._replies[:size]
        return data

    def _fill(self) -> None:
        """Read what comes within a glance and take the engine's stream headers off."""
        try:
            data = self._sock.recv(1 << 18)
        except TimeoutError:
            self._alive()
            return
        except OSError as fault:
            raise self._lost(str(fault)) from fault
        if not data:
            self._alive()
            raise self._lost("its stream ended")
        self._raw += data
        while len(self._raw) >= MUX.size:
            stream, size = MUX.unpack_from(self._raw)
            if len(self._raw) < MUX.size + size:
                break
            part = self._raw[MUX.size : MUX.size + size]
            del self._raw[: MUX.size + size]
            if stream == 1:
                self._replies += part
            else:
                self.noise = (self.noise + part)[-MAX_NOISE:]

    def _lost(self, why: str) -> SandboxLost:
        said = self.noise.decode("utf-8", "replace").strip().splitlines()
        return SandboxLost("the sandbox broke off", why=f"{why} ({said[-1]})" if said else why)
