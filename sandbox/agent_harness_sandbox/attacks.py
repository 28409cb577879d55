"""What an attacker inside tries, of any sandbox: the probes of attacks.toml, each closed or listed with its reason.

In a test module: `from agent_harness_sandbox.attacks import *` beside the conformance suite, with the same fixture
`make_sandbox`. One sandbox for each mode takes all of them, one after the other, so that a probe also has to leave
the next one a sandbox that answers. What is left open is in the threat model of DESIGN.md.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from agent_harness.types import Mode
from agent_harness_sandbox.conformance import LEFT, PYTHON, Box, MakeSandbox, digest

__all__ = ["test_every_attack_is_closed_or_listed"]

REFUSED = ("EPERM", "EACCES", "ENOSYS", "EROFS")
CANARY = "canary-5f1d"
PRELUDE = """
import ctypes, errno, fcntl, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0: raise OSError(ctypes.get_errno(), "")
def plain(value):
    return ctypes.c_long(value) if isinstance(value, int) else value
def call(*args): checked(libc.syscall(*map(plain, args)))
def prctl(*args): checked(libc.prctl(*map(plain, args)))
def put(path, text): os.write(os.open(path, os.O_WRONLY), text.encode())
def refuse(): raise PermissionError(1, "")
try:
%s
except OSError as fault: print("closed", errno.errorcode.get(fault.errno, "EAI"))
else: print("OPEN")
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt, as attacks.toml explains it."""

    family: str
    name: str
    mode: str = ""
    call: str = ""
    python: str = ""
    shell: str = ""
    errno: tuple[str, ...] = ()
    says: str = ""
    code: int | None = None
    ends: str = "exited"
    reads: str = ""
    open: str = ""
    harms: bool = False

    @property
    def script(self) -> str:
        """What is run inside."""
        body = f"call({self.call})" if self.call else self.python
        return self.shell or f"exec {PYTHON} - <<'PYTHON'\n{PRELUDE % textwrap.indent(body.strip(), '    ')}\nPYTHON"

    def tried(self, box: Box, env: dict[str, str]) -> str:
        """What was seen where it is not what closes (or, if listed, what is known to be open); empty when it is."""
        quick = "timeout" in self.ends
        result = box.run(self.script, timeout_s=0.8 if quick else 60.0, env=env)
        said = (result.head + result.tail).decode("utf-8", "replace").strip("\n")
        says = self.says or ("" if self.shell else rf"^closed ({'|'.join(self.errno or REFUSED)})$")
        seen = f"{result.end} {result.exit_code}: {said[-300:]}"
        if result.end not in self.ends.split(" or ") or self.code not in {None, result.exit_code}:
            return seen
        if (self.says or result.end == "exited") and not re.search(says, said):
            return seen
        if self.reads:
            try:
                return f"the harness read {box.sandbox.read_file(self.reads, 1 << 20)[:40]!r}"
            except (ValueError, OSError):
                pass
        return ""


def probes(mode: Mode | None = None) -> Iterator[Probe]:
    """All of them, or those of a mode."""
    text = resources.files("agent_harness_sandbox").joinpath("attacks.toml").read_text()
    for family, rows in tomllib.loads(text).items():
        for row in rows:
            found = Probe(family, **{**row, "errno": tuple(row.get("errno", ()))})
            if mode is None or found.mode in {"", mode}:
                yield found


def addresses() -> str:
    """This machine's own, as far as it knows them, and the engine's usual gateway."""
    try:
        rows = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except OSError:
        rows = []
    return " ".join({"172.17.0.1", *(str(row[4][0]) for row in rows)} - {"127.0.0.1", "127.0.1.1"})


def attack(box: Box, mode: Mode, wanted: Callable[[Probe], bool] = lambda _: True) -> dict[str, str]:
    """Try them all; what did not go as it has to, by name."""
    native = platform.machine() == "x86_64"
    found = {}
    with socket.create_server(("0.0.0.0", 0)) as host:  # noqa: S104 - what must not be reached
        env = {"HOSTS": addresses(), "PORT": str(host.getsockname()[1])}
        for probe in filter(wanted, probes(mode)):
            if probe.call and not native:
                continue
            seen = probe.tried(box, env)
            left = box.run(f"echo alive; {LEFT}").head
            if seen or left != b"alive\n0\n":
                found[probe.name] = seen or f"afterwards {left!r}"
    return found


@pytest.mark.parametrize("mode", [Mode.RO, Mode.RW])
def test_every_attack_is_closed_or_listed(
    make_sandbox: MakeSandbox, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None succeeds but those that DESIGN.md lists, the sandbox answers after each, and the host does not move."""
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    box = make_sandbox(mode, files={"f": b"1\n", "d/g": b"2\n"})
    before, tree = _host(), digest(box.tree)
    found = attack(box, mode)
    assert not found, found
    assert _host() == before
    assert mode is Mode.RW or digest(box.tree) == tree


def _host() -> list[str]:
    return [Path("/proc/sys/kernel/core_pattern").read_text(), os.uname().nodename]
