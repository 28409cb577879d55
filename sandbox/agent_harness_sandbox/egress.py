"""The one way out of a sandbox with an allow list: a forward proxy of ours on a unix socket that only it can see.

The sandbox keeps network `none`. The proxy knows exact `host:port` pairs, resolves names itself, and connects to the
very address it judged. An address that is not public (loopback, link-local, private, metadata) is reached only where
that address and port are listed themselves, so that no name can be bent to it. It cannot look into TLS: whoever
serves a listed host could carry more than that host.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agent_harness.types import endpoint
from agent_harness_sandbox.relay import accept, join

HEAD = 16 << 10
HEAD_S, CONNECT_S = 10.0, 20.0
TOLD = 200
"""Different refusals kept between two looks; a command that tries more is told of no more."""
TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""IPv6 that carries an IPv4 address, which may be anybody's."""
DROPPED = {b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade"}


class Refused(Exception):
    """A request that is answered with a status and one line. `denied`: the list, not the other side, said no."""

    def __init__(self, status: str, why: str, denied: tuple[str, int] | None = None) -> None:
        self.status, self.why, self.denied = status, why, denied
        super().__init__(why)


class Egress:
    """A running proxy. `folder` is mounted read-only: a socket there can be connected to, not replaced."""

    def __init__(self, allow: Sequence[str], beside: Path, uid: int, gid: int) -> None:
        """`beside` is a private folder of the harness, in which `folder` is made."""
        self._allow = frozenset(endpoint(one) for one in allow)
        self._lock = threading.Lock()
        self._denied: dict[tuple[str, int, str], int] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="way-", dir=beside))
        self._listener = socket.socket(socket.AF_UNIX)
        held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)  # a whole path may be longer than an address can be
        self._listener.bind(f"/proc/self/fd/{held}/proxy")
        os.close(held)
        if os.geteuid() == 0:
            os.chown(self.folder / "proxy", uid, gid)
            os.chown(self.folder, uid, gid)
        self._listener.listen(64)
        threading.Thread(target=accept, args=(self._listener, self._serve), name="egress", daemon=True).start()

    def denied(self) -> list[dict[str, Any]]:
        """What was refused since the last look: host, port, why, count."""
        with self._lock:
            found, self._denied = self._denied, {}
        return [{"host": host, "port": port, "why": why, "count": n} for (host, port, why), n in found.items()]

    def close(self) -> None:
        """Take no more connections and remove the folder; safe to repeat. What is open ends with its sandbox."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self, client: socket.socket) -> None:
        try:
            head, rest = _head(client)
            target, first = _request(head)
            upstream = self._reach(*target)
        except Refused as no:
            if no.denied:
                self._note(*no.denied, no.why)
            body = f"agent-harness: {no.why}\n".encode()
            about = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            client.sendall(f"HTTP/1.1 {no.status}\r\n{about}".encode() + body)
            return
        with upstream:
            if not first:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream.sendall(first + rest)
            join(client, upstream)

    def _note(self, host: str, port: int, why: str) -> None:
        key = (host[:255], port, why)
        with self._lock:
            if key in self._denied or len(self._denied) < TOLD:
                self._denied[key] = self._denied.get(key, 0) + 1

    def _reach(self, host: str, port: int) -> socket.socket:
        """A connection to a listed place. Raises Refused."""
        if (host, port) not in self._allow:
            raise Refused("403 Forbidden", f"{host}:{port} is not in sandbox.allow", (host, port))
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as fault:
            raise Refused("502 Bad Gateway", f"{host} has no address: {fault}") from fault
        found = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows)
        good = [one for one in found if public(one) or (one, port) in self._allow]
        if not good:
            why = f"{host} is at {', '.join(found)}, which is not public; list that address and port too"
            raise Refused("403 Forbidden", why, (host, port))
        why = ""
        for one in good:
            try:
                return socket.create_connection((one, port), timeout=CONNECT_S)
            except OSError as fault:
                why = str(fault)
        raise Refused("502 Bad Gateway", f"{host}:{port} cannot be reached: {why}")


def public(address: str) -> bool:
    """Whether an address is one of the open internet, and can be no way to a machine or network of ours."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in one for one in TRANSLATED):
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """A request's lines, and what came after them."""
    until, data = time.monotonic() + HEAD_S, b""
    while b"\r\n\r\n" not in data:
        client.settimeout(max(0.01, until - time.monotonic()))
        try:
            more = client.recv(HEAD)
        except TimeoutError as fault:
            raise Refused("408 Request Timeout", f"no whole request within {HEAD_S:g} s") from fault
        data += more
        if not more or len(data) > HEAD:
            raise Refused("431 Request Header Fields Too Large", f"no whole request in {HEAD} bytes")
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _request(head: bytes) -> tuple[tuple[str, int], bytes]:
    """Where a request wants to go, and how it is put there; nothing to put for CONNECT."""
    lines = head.split(b"\r\n")
    try:
        method, target, version = lines[0].decode("ascii").split(" ")
        if method == "CONNECT":
            return endpoint(target), b""
        url = urlsplit(target)
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        place = endpoint(f"{host or ''}:{url.port or 80}")
    except ValueError as fault:
        raise Refused("400 Bad Request", f"a request that the proxy does not take: {fault}") from fault
    folded = any(line[:1] in {b" ", b"\t", b""} for line in lines[1:])
    if url.scheme != "http" or "@" in url.netloc or not version.startswith("HTTP/1.") or folded:
        raise Refused("400 Bad Request", "the proxy takes CONNECT, and HTTP/1 requests for http URLs")
    # a plain request is made to name the host it goes to, and to be the last on its connection
    path = urlunsplit(("", "", url.path or "/", url.query, ""))
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in DROPPED]
    new = [f"{method} {path} HTTP/1.1".encode(), f"Host: {url.netloc}".encode(), b"Connection: close", *kept]
    return place, b"\r\n".join(new) + b"\r\n\r\n"
