"""The way out of a sandbox that may reach a few places: a port of its own loopback, carried to the proxy's socket.

This text runs inside, in threads of process 1 or beside a set-up's commands: standard library only, Python 3.9. It
decides nothing. Whoever inside connects to the socket itself meets the same proxy with the same list.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 3128
SOCKET = "/run/agent-harness/proxy"
CONNECTIONS = 64
IDLE_S, LINGER_S = 600.0, 60.0


def carry(source: socket.socket, target: socket.socket) -> None:
    """Copy one direction to its end."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def join(one: socket.socket, two: socket.socket) -> None:
    """Copy both directions. Once the first end has no more to say, the other has a while for the rest of its answer."""
    for end in (one, two):
        end.settimeout(IDLE_S)
    back = threading.Thread(target=carry, args=(two, one), daemon=True)
    back.start()
    carry(one, two)
    back.join(LINGER_S)
    for end in (one, two):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    back.join()


def accept(listener: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    """Give every connection a thread of its own, a bounded number at once, until the listener is shut down."""
    room = threading.BoundedSemaphore(CONNECTIONS)

    def one(client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError, RuntimeError):  # no thread to be had: its pids are used up
                handle(client)
        finally:
            room.release()

    while True:
        room.acquire()
        client = None
        try:
            client = listener.accept()[0]
            threading.Thread(target=one, args=(client,), daemon=True).start()
        except (OSError, RuntimeError) as fault:
            room.release()
            if client is not None:
                client.close()
            elif getattr(fault, "errno", 0) in {errno.EINVAL, errno.EBADF}:
                return
            time.sleep(0.05)


def serve() -> None:
    """Listen inside. Returns at once; raises OSError where the port is taken."""

    def through(client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as proxy:
            proxy.connect(SOCKET)
            join(client, proxy)

    listener = socket.create_server(("127.0.0.1", PORT), backlog=CONNECTIONS)
    threading.Thread(target=accept, args=(listener, through), daemon=True).start()
