"""Every promise of a sandbox, tried for real, with how to mend it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from agent_harness.errors import HarnessError, SandboxUnavailable
from agent_harness.ports import Finding, SandboxEngine
from agent_harness.types import Command, CommandEnd, Mode, Mount, SandboxSpec
from agent_harness_sandbox import policy, runtime
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.removal import BACKGROUND

LEAST_API = (1, 41)
PROFILE = "use a stock Docker engine with runc, or report what was seen; a weaker container is not started"


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
    found = [Finding(f"start {mode}", True, f"{about.get('start_s')} s, its exec server by {about.get('exec')}")]
    name = f"commands {mode}"
    try:
        end = sandbox.execute(Command(_STUBBORN, timeout_s=0.5)).end
        for at, name, script, want, fix in _TRIES:
            if at is mode:
                result = sandbox.execute(Command(script, timeout_s=20, env={"END": end}))
                lines = (result.head + result.tail).decode("utf-8", "replace").strip().splitlines()
                seen = lines[-1].strip() if lines else f"nothing, exit code {result.exit_code}"
                ok = result.end is CommandEnd.EXITED and seen == want
                found.append(Finding(name, ok, seen, "" if ok else fix))
    except HarnessError as fault:
        found.append(Finding(name, False, fault.line, PROFILE))
    finally:
        sandbox.close()
    found.append(_removed(f"removal {mode}", str(about.get("name"))))
    return found


def _removed(name: str, container: str) -> Finding:
    BACKGROUND.wait(30)
    with contextlib.closing(connect(timeout_s=10)) as client:
        if client.api.containers(all=True, filters={"name": container}):
            return Finding(name, False, f"{container} is still there", f"run `docker rm -f {container}`")
    return Finding(name, True, "the container is gone")


_PYTHON = f"""[ -e {policy.LENT} ] && set -- {" ".join(policy.LENT_PYTHON)} || set -- python3; exec "$@" -I -S -c '
import socket
def tried(family):
    try:
        socket.socket(family, 1)
    except OSError:
        return "refused"
    return "open"
print(tried(40), tried(38))'"""
_REACH = "for to in 1.1.1.1/53 example.org/80; do (exec 3<>/dev/tcp/$to) && echo open || echo refused; done 2>/dev/null"
_STATUS = """while read -r name value; do
case $name in CapEff: | CapBnd: | NoNewPrivs: | Seccomp:) printf '%s ' "$value" ;; esac; done </proc/self/status"""
_STUBBORN = "trap '' TERM; setsid sleep 61 & (trap '' TERM; sleep 62) & sleep 63"
_LEFT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 6'"
_SOURCE = "give the workspace folder to the user the sandbox runs as; on SELinux label it container_file_t"
_TRIES = (
    (Mode.RW, "write works in rw", "echo x >>there && touch new && rm new && echo written", "written", _SOURCE),
    (Mode.RO, "write refused in ro", "(echo x >>there; touch new) 2>/dev/null; cat there; ls", "there", PROFILE),
    (Mode.RO, "root file system refused", "touch /etc/x /usr/x /x 2>/dev/null || echo refused", "refused", PROFILE),
    (Mode.RO, "network closed", f"echo $({_REACH})", "refused refused", "set sandbox.network to none"),
    (Mode.RO, "capabilities, privileges, seccomp", _STATUS, f"{'0' * 16} {'0' * 16} 1 2", PROFILE),
    (Mode.RO, "odd socket families refused", _PYTHON, "refused refused", PROFILE),
    (
        Mode.RO,
        "timeout kills everything",
        f'echo "ended as $END, $({_LEFT}) processes left"',
        f"ended as {CommandEnd.TIMEOUT}, 0 processes left",
        PROFILE,
    ),
)
"""In which mode, what for, the script, its last line where the promise holds, and how to mend it. END is how a command
ended that was given half a second and did not want to."""
