#!/usr/bin/env python3
"""Set this checkout up: virtual environment, Docker engine, sandbox image. Standard library only.

    python3 scripts/setup.py            what `make demo` and `make test` need
    python3 scripts/setup.py --check    and what `make check` needs on top
    python3 scripts/setup.py COMMAND    and then run this, as somebody who may use the engine

Says each step on stderr with the seconds since its start. Does only what is missing: a second run takes a second.
Exit codes: 0 ready, 2 something that only the user can do (said in one line), 3 a download or a start failed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "setup-stamp.json"
LOGS = ROOT / ".cache" / "setup"
SOCKET = "/var/run/docker.sock"
DOCKERD_LOG = Path("/var/log/agent-harness-dockerd.log")
DOCKERD_ENDED = "agent-harness: dockerd ended"
START = "the Docker engine is installed and does not run: it has to be started"
WITHOUT_NETWORK = ["--iptables=false", "--ip6tables=false", "--bridge=none"]
OLDEST = (3, 11)
ENGINE_WAIT_S = 60
APT_WAIT_S = 300
APT_PAUSE_S = 5
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
STARTED = time.monotonic()


class Refused(Exception):
    """Set-up cannot go on: one line for the user, and the exit code."""

    def __init__(self, line: str, code: int) -> None:
        super().__init__(line)
        self.code = code


def say(text: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"setup [{time.monotonic() - STARTED:5.1f} s] {text}\n")


def run(words: list[str], log: str) -> None:
    """Run a command with no input, its output kept in a log. Raises Refused (3) with the log's last lines."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{log}.log"
    with path.open("wb") as out:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise Refused(f"`{' '.join(words[:6])}` ended with {done.returncode}: {tail(path)} (all of it: {path})", 3)


def tail(path: Path) -> str:
    """The last lines of a log that say something, in one line."""
    lines = path.read_text(errors="replace").splitlines()
    return " | ".join([line.strip() for line in lines if line.strip() and "WARNING: Location" not in line][-4:])


# --- packages of the system ---------------------------------------------------------------------------------


def as_root(why: str) -> list[str]:
    """What to put before a command that root must run. Raises Refused (2), saying `why` root is needed."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        if subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0:
            return ["sudo"]
        with contextlib.suppress(OSError), Path("/dev/tty").open("rb"):  # where sudo asks, whatever stdin is
            return ["sudo"]
    raise Refused(f"{why}; that needs root, and sudo does not give it without a question: run make as root", 2)


def apt_install(packages: list[str], why: str) -> None:
    """Install packages, with fresh lists if the ones at hand do not do."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Refused(f"{why}, and this machine has no apt-get: install {names} yourself, then run make again", 2)
    root = as_root(f"{why}: `apt-get install {names}` is needed")
    say(f"{why}: installing {names} with apt-get{' (by sudo)' if root else ''}")

    def apt(*words: str) -> None:
        """`apt-get update` has no option for waiting, and a machine's first minutes are full of other runs of apt."""
        end = time.monotonic() + APT_WAIT_S
        while True:
            try:
                return run([*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *words], f"apt-{words[0]}")
            except Refused as fault:
                if "/lock" not in str(fault) or time.monotonic() > end:
                    raise
            say("another program is at the packages; waiting for it")
            time.sleep(APT_PAUSE_S)

    try:
        apt("install", "-y", "--no-install-recommends", *packages)
    except Refused:
        say("that failed; fetching fresh package lists (apt-get update) and trying again")
        apt("update")
        apt("install", "-y", "--no-install-recommends", *packages)
    say(f"installed {names}")


# --- the Docker engine --------------------------------------------------------------------------------------


def chosen_engine() -> str:
    """The engine that the user's own settings name, if it is not the default socket: it is theirs to start."""
    if host := os.environ.get("DOCKER_HOST", ""):
        return f"DOCKER_HOST={host}" if host != f"unix://{SOCKET}" else ""
    name = os.environ.get("DOCKER_CONTEXT", "")
    if not name:
        folder = os.environ.get("DOCKER_CONFIG") or str(Path.home() / ".docker")
        with contextlib.suppress(OSError, ValueError, AttributeError):
            name = str(json.loads(Path(folder, "config.json").read_text()).get("currentContext", ""))
    return f"docker context {name}" if name not in {"", "default"} else ""


def engine_state(path: str = SOCKET) -> str:
    """`yes`, `no`, or `denied`: does a Docker engine answer this user at the socket?"""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(path)
            line.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return "yes" if b" 200 " in line.recv(256) else "no"
    except PermissionError:
        return "denied"
    except OSError:
        return "no"


def dockerd_path() -> str | None:
    """Where the engine's program is, also if this user's PATH leaves the system folders out."""
    return shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{SBIN}")


def start_engine() -> None:
    """Start the installed engine and wait until it answers. Raises Refused."""
    if engine_state() == "no":
        if Path("/run/systemd/system").is_dir():
            say("starting the Docker engine (systemctl start docker)")
            run([*as_root(START), "systemctl", "start", "docker"], "systemctl")
            wait_for_engine()
        else:
            start_dockerd()
    if engine_state() == "no":
        raise Refused(f"the Docker engine does not answer at {SOCKET}: look at `journalctl -u docker`", 3)
    say("the Docker engine answers")


def start_dockerd(log: Path = DOCKERD_LOG, path: str = SOCKET) -> None:
    """Start the engine as a process of its own, with the network it wants, else without any: sandboxes have none."""
    program = dockerd_path()
    if program is None:
        raise Refused("docker.io is installed, yet there is no dockerd: reinstall it", 3)
    for flags in ([], WITHOUT_NETWORK):
        say(f"starting {' '.join(['dockerd', *flags])} in the background, log in {log}")
        seen = log.stat().st_size if log.exists() else 0
        script = f'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null; echo "{DOCKERD_ENDED} ($?)" >>"$log"'
        words = ["setsid", "-f", "sh", "-c", script, "sh", str(log), program, *flags]
        subprocess.run([*as_root(START), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

        def ended(seen: int = seen) -> bool:
            return log.exists() and DOCKERD_ENDED in log.read_bytes()[seen:].decode(errors="replace")

        if wait_for_engine(ended, path):
            return
        say(f"dockerd did not start: {tail(log)[-300:]}")
    raise Refused(f"dockerd does not start on this machine: read {log}", 3)


def wait_for_engine(ended: Callable[[], bool] = lambda: False, path: str = SOCKET) -> bool:
    """True once something answers (or denies) at the socket; False when it ended or took too long."""
    end = time.monotonic() + ENGINE_WAIT_S
    while time.monotonic() < end:
        if engine_state(path) != "no":
            return True
        if ended():
            return False
        time.sleep(0.1)
    return False


def join_engine_group() -> None:
    """The engine runs and denies this user its socket: begin again in its group, for this process alone.

    Joining for good is the user's to decide; who has sudo has the right to this. Raises Refused."""
    user = pwd.getpwuid(os.geteuid())
    why = f"the Docker engine denies {user.pw_name} its socket {SOCKET}"
    for_good = f"`sudo usermod -aG docker {user.pw_name}` and a new login"
    group = Path(SOCKET).stat().st_gid
    if group in {0, *os.getgroups()}:  # its own would let nobody in but root, or was of no use
        raise Refused(f"{why}: {for_good}, or make by sudo", 2)
    sudo = as_root(f"{why}: {for_good} would do")
    say(f"{why}; going on in the socket's group, this once (by sudo). For good: {for_good}")
    groups = ",".join(map(str, [*os.getgroups(), group]))
    who = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={os.getegid()}", f"--groups={groups}"]
    same = [f"{name}={os.environ[name]}" for name in ("HOME", "PATH") if name in os.environ]  # sudo sets its own
    os.execvp("sudo", [*sudo, "-E", *who, "env", *same, sys.executable, *sys.argv])  # noqa: S606


# --- the virtual environment --------------------------------------------------------------------------------


def digest(*names: str) -> str:
    """Of these files of the checkout, together."""
    return hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in names)).hexdigest()


def wanted_stamp(check: bool) -> dict[str, str]:
    """What an environment made now would be made from."""
    return {
        "at": f"{ROOT} {sys.version_info[0]}.{sys.version_info[1]}",
        "locked": digest("requirements.txt"),
        "check": digest("requirements-check.txt") if check else "",
        "project": digest("pyproject.toml"),
    }


def stamped() -> dict[str, str]:
    """What the environment was made from; nothing if it is not there, unfinished, or its python is gone."""
    with contextlib.suppress(OSError, ValueError):
        if (VENV / "bin" / "python").exists():
            return dict(json.loads(STAMP.read_text()))
    return {}


def make_environment(check: bool) -> None:
    """Create or mend `.venv` from the lock files; the project itself goes in editable."""
    have, want = stamped(), wanted_stamp(check)
    if have and not check:
        want["check"] = have.get("check", "")
    if have == want:
        return
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--no-input", "install", "-q", "--no-deps"]
    if have.get("at") != want["at"]:
        say(f"making .venv with Python {sys.version.split()[0]}")
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], "venv")
        run([*pip[:3], "uninstall", "-q", "-y", "setuptools"], "venv-lean")  # Python 3.11's; nothing here uses it
        have = stamp({"at": want["at"]})
    for part, name in (("locked", "requirements.txt"), ("check", "requirements-check.txt")):
        if want[part] and have.get(part) != want[part]:
            say(f"installing {name} into .venv (hash-checked)")
            run([*pip, "--require-hashes", "--no-compile", "-r", str(ROOT / name)], f"pip-{part}")
            have = stamp({**have, part: want[part]})
    run([*pip, "--no-index", "--no-build-isolation", "--no-compile", "-e", str(ROOT)], "pip-project")
    stamp(want)
    size = subprocess.run(["du", "-sm", str(VENV)], capture_output=True, text=True, check=False).stdout.split()
    say(f".venv is ready{f', {size[0]} MB' if size else ''}")


def stamp(done: dict[str, str]) -> dict[str, str]:
    """Note how far the environment is, so that a broken-off set-up goes on from there."""
    fresh = STAMP.with_suffix(".new")
    fresh.write_text(json.dumps(done))
    fresh.replace(STAMP)
    return done


def build_image() -> None:
    """The sandbox image: the package says each step itself."""
    words = [str(VENV / "bin" / "python"), "-m", "agent_harness_sandbox.image"]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            say(line.rstrip())
    if process.returncode:
        raise Refused("stopped: there is no sandbox image", process.returncode if process.returncode > 0 else 3)


# --- all of it ----------------------------------------------------------------------------------------------


def prepare_process() -> None:
    """A home folder that exists in name, and no setting of the user's that would send packages elsewhere."""
    if not os.environ.get("HOME"):
        os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH"):
        os.environ.pop(name, None)
    os.environ.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    if not os.access(os.environ["HOME"], os.W_OK):
        os.environ["PIP_CACHE_DIR"] = str(ROOT / ".cache" / "pip")
    os.umask(0o022)


def set_up(check: bool) -> None:
    """All stages; the environment and the engine side by side."""
    theirs = chosen_engine()
    state = "yes" if theirs else engine_state()
    if state == "denied":
        join_engine_group()
    engine = ["docker.io", "iptables"] if state == "no" and dockerd_path() is None else []
    node = ["nodejs"] if check and shutil.which("node") is None else []
    venv = ["python3-venv"] if importlib.util.find_spec("ensurepip") is None and not stamped() else []
    missing = {"no Docker engine": engine, "no node, which pyright needs": node, "no python3-venv": venv}
    packages = [name for names in missing.values() for name in names]
    why = f"this machine has {' and '.join(what for what, names in missing.items() if names)}"
    if packages:  # these two refuse now rather than after minutes
        as_root(f"{why}: `apt-get install {' '.join(packages)}` is needed")
    elif state == "no":
        as_root(START)

    def system() -> None:
        if packages:
            apt_install(packages, why)
        if state == "no":
            start_engine()

    if venv:
        system()
        make_environment(check)
    else:
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(make_environment, check), pool.submit(system)]
        for one in both:
            one.result()  # the first refusal, once both have ended
    if not theirs and engine_state() == "denied":
        join_engine_group()
    build_image()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up of this checkout at a time; the second waits and then finds everything done."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this checkout is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Exit code of the whole set-up."""
    words = argparse.ArgumentParser(description="Set this checkout up.")
    words.add_argument("--check", action="store_true", help="with the developers' tools of `make check`")
    words.add_argument("command", nargs=argparse.REMAINDER, help="what to run afterwards")
    asked = words.parse_args()
    if sys.version_info < OLDEST:
        say(f"Python {sys.version.split()[0]} is too old, 3.11 is the oldest: try `make PYTHON=python3.12 demo`")
        return 2
    try:
        prepare_process()
        with alone():
            set_up(asked.check)
        if asked.command:
            os.execvp(asked.command[0], asked.command)  # noqa: S606
    except Refused as fault:
        say(str(fault))
        return fault.code
    except (OSError, subprocess.SubprocessError) as fault:
        hint = f"; after make by sudo: `sudo chown -R $USER {ROOT}`" if isinstance(fault, PermissionError) else ""
        say(f"the system refused: {fault}{hint}")
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
