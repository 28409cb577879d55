"""Every promise of a sandbox, tried for real, with how to mend it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent_harness.errors import HarnessError, SandboxUnavailable
from agent_harness.ports import Finding, Sandbox, SandboxEngine
from agent_harness.types import Command, CommandEnd, Mode, Mount, SandboxSpec
from agent_harness_sandbox import runtime
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.removal import BACKGROUND

LEAST_API = (1, 41)
PROFILE = "use a stock Docker engine with runc, or report what was seen; a weaker container is not started"
Try = Callable[[Sandbox], tuple[bool, str]]


def runs_as() -> tuple[int, int]:
    """The uid and gid a sandbox runs as: this user's, or 1000 where this is root."""
    return (os.geteuid(), os.getegid()) if os.geteuid() else (1000, 1000)


def examine(engine: SandboxEngine, image: str) -> list[Finding]:
    """Findings in the order of trying; the first that stops all others is the last."""
    found: list[Finding] = []
    try:
        client = connect(timeout_s=10)
    except SandboxUnavailable as fault:
        return [Finding("engine", False, fault.what + ": " + fault.why, fault.next)]
    with contextlib.closing(client):
        version = client.version()
    api = tuple(int(part) for part in str(version.get("ApiVersion", "0")).split("."))
    found.append(Finding("engine", True, f"{version.get('Version')} on {version.get('Os')}/{version.get('Arch')}"))
    old = "" if api >= LEAST_API else "take Docker 20.10 or later"
    found.append(Finding("engine version", not old, f"API {version.get('ApiVersion')}", old))
    found.append(runtime.judge(version.get("Components") or []))
    try:
        found.append(Finding("image", True, f"{image} is {engine.image_id(image)[:19]}"))
    except SandboxUnavailable as fault:
        return [*found, Finding("image", False, fault.line, fault.next)]
    folder = Path(tempfile.mkdtemp(prefix="agent-harness-doctor-"))
    try:
        (folder / "there").write_text("there\n")
        if os.geteuid() == 0:
            os.chown(folder, *runs_as())
            os.chown(folder / "there", *runs_as())
        for mode in (Mode.RW, Mode.RO):
            found += _in_mode(engine, image, folder, mode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _in_mode(engine: SandboxEngine, image: str, folder: Path, mode: Mode) -> list[Finding]:
    uid, gid = runs_as()
    mounts = (Mount(str(folder), "/workspace", mode is Mode.RO),)
    spec = SandboxSpec(mode=mode, image=image, workdir="/workspace", mounts=mounts, uid=uid, gid=gid)
    try:
        sandbox = engine.start(spec)
    except HarnessError as fault:
        return [Finding(f"start {mode}", False, fault.what + ": " + fault.why, fault.next)]
    about = sandbox.describe()
    found = [Finding(f"start {mode}", True, f"{about.get('start_s')} s, profile {about.get('profile')}")]
    try:
        for name, attempt, fix in _WRITES[mode] + (_CLOSED if mode is Mode.RO else ()):
            try:
                ok, seen = attempt(sandbox)
            except HarnessError as fault:
                ok, seen = False, fault.line
            found.append(Finding(name, ok, seen, "" if ok else fix))
    finally:
        sandbox.close()
    found.append(_removed(f"removal {mode}", str(about.get("name"))))
    return found


def _removed(name: str, container: str) -> Finding:
    from docker.errors import NotFound

    BACKGROUND.wait(30)
    with contextlib.closing(connect(timeout_s=10)) as client:
        try:
            client.api.inspect_container(container)
        except NotFound:
            return Finding(name, True, "the container is gone")
    return Finding(name, False, f"{container} is still there", f"run `docker rm -f {container}`")


def _shell(script: str, want: str) -> Try:
    """Holds when the script's last line is `want`."""

    def attempt(sandbox: Sandbox) -> tuple[bool, str]:
        result = sandbox.execute(Command(script, timeout_s=20))
        lines = (result.head + result.tail).decode("utf-8", "replace").strip().splitlines()
        seen = lines[-1] if lines else f"nothing, exit code {result.exit_code}"
        return result.ok and seen == want, seen

    return attempt


def _timeout(sandbox: Sandbox) -> tuple[bool, str]:
    script = "trap '' TERM; setsid sleep 61 & (trap '' TERM; sleep 62) & sleep 63"
    result = sandbox.execute(Command(script, timeout_s=0.5))
    left = sandbox.execute(
        Command("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 6'", timeout_s=10)
    )
    count = left.head.decode("utf-8", "replace").strip()
    return result.end is CommandEnd.TIMEOUT and count == "0", f"ended as {result.end}, {count} processes left"


_PYTHON = """python3 -c '
import socket
def tried(call, *args):
    try:
        call(*args)
    except OSError as fault:
        return "refused"
    return "open"
print(%s)'"""
_REACH = 'tried(socket.create_connection, ("1.1.1.1", 53), 2), tried(socket.getaddrinfo, "example.org", 80)'
_FAMILIES = "tried(socket.socket, 40, 1), tried(socket.socket, 38, 5)"
_STATUS = 'awk \'/^(CapEff|CapBnd|NoNewPrivs|Seccomp):/{printf "%s ", $2} END{print ""}\' /proc/self/status'
_SOURCE = "give the workspace folder to the user the sandbox runs as; on SELinux label it container_file_t"

_WRITES: dict[Mode, tuple[tuple[str, Try, str], ...]] = {
    Mode.RW: (
        ("write works in rw", _shell("echo x >>there && touch new && rm new && echo written", "written"), _SOURCE),
    ),
    Mode.RO: (
        ("write refused in ro", _shell("(echo x >>there; touch new) 2>/dev/null; cat there; ls", "there"), PROFILE),
    ),
}
_CLOSED: tuple[tuple[str, Try, str], ...] = (
    ("root file system refused", _shell("touch /etc/x /usr/x /x 2>/dev/null || echo refused", "refused"), PROFILE),
    ("network closed", _shell(_PYTHON % _REACH, "refused refused"), "set sandbox.network to none"),
    ("capabilities, privileges, seccomp", _shell(_STATUS, f"{'0' * 16} {'0' * 16} 1 2"), PROFILE),
    ("odd socket families refused", _shell(_PYTHON % _FAMILIES, "refused refused"), PROFILE),
    ("timeout kills everything", _timeout, PROFILE),
)
