"""The project's own sandbox image: built once, tagged by the digest of its recipe, from whatever this machine has.

Where a registry answers, a plain base plus the packages; else bootstrapped from the packages that the machine's own
apt is configured for and imported. `python -m agent_harness_sandbox.image` builds it and prints its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_harness.errors import SandboxUnavailable
from agent_harness_sandbox.client import connect, plain

Say = Callable[[str], None]

BASE = "debian:stable-slim"
BASE_WAIT_S = 20
APT_WAIT_S = 300
PACKAGES = (
    *("bash", "ca-certificates", "coreutils", "diffutils", "file", "findutils", "git", "gzip", "less", "make", "patch"),
    *("procps", "python-is-python3", "python3", "python3-pytest", "python3-venv", "ripgrep", "sed", "tar", "tzdata"),
    "xz-utils",
)
_DROPPED = ("doc/*", "info/*", "lintian/*", "locale/*", "man/*", "bug/*")
_FINISH = r"""set -e
getent passwd 1000 >/dev/null || echo 'agent:x:1000:1000::/tmp:/bin/bash' >>/etc/passwd
getent group 1000 >/dev/null || echo 'agent:x:1000:' >>/etc/group
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*
rm -rf /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap /etc/apt/sources.list /etc/apt/sources.list.d
find / -xdev -name __pycache__ -path '*/test*' -prune -exec rm -rf {} +
mkdir -p /workspace /base /scratch
"""
_CHANGES = (
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "ENV LANG=C.UTF-8",
    'LABEL agent-harness.image="own"',
    'CMD ["bash"]',
)
RECIPE = hashlib.sha256("\n".join([BASE, *PACKAGES, *_DROPPED, _FINISH, *_CHANGES]).encode()).hexdigest()[:12]
REPOSITORY = "agent-harness-sandbox"
OWN_IMAGE = f"{REPOSITORY}:{RECIPE}"
UNUSED_S = 86_400.0
"""How long a superseded image stays after it was last asked for."""


def ensure(say: Say) -> str:
    """The name of the own image, built first if it is absent. Says every step before doing it.

    Raises SandboxUnavailable when no engine answers or neither way of building works."""
    with contextlib.closing(connect(timeout_s=600)) as client:
        once(client, OWN_IMAGE, say, lambda: _build(client, say))
        own = client.images.get(OWN_IMAGE)
        clear(client, [one for one in client.images.list(REPOSITORY) if one.id != own.id], say, time.time())
    return OWN_IMAGE


def _build(client: Any, say: Say) -> None:
    """By the registry if it answers, else by bootstrap."""
    from docker.errors import DockerException

    say(f"sandbox image {OWN_IMAGE}: asking the registry for {BASE} (waiting {BASE_WAIT_S} s at most)")
    try:
        with contextlib.closing(connect(BASE_WAIT_S)) as hasty:
            hasty.images.pull(BASE)
        say(f"building it from {BASE} with {len(PACKAGES)} packages")
        client.images.build(fileobj=io.BytesIO(dockerfile().encode()), tag=OWN_IMAGE, rm=True, forcerm=True)
        return
    except (DockerException, OSError) as fault:
        why = plain(fault)[:160]
    say(f"no image that way ({why}); bootstrapping it from this machine's own package sources, about a minute")
    _bootstrap(client, say)
    if not client.images.list(OWN_IMAGE):
        raise SandboxUnavailable(f"the engine took {OWN_IMAGE} and does not have it", next="look at the engine's log")


def once(client: Any, tag: str, say: Say, make: Callable[[], None]) -> None:
    """Have an image made where there is none, by one process at a time, and note that it was asked for."""
    if not client.images.list(tag):
        with one_builder(say):
            if not client.images.list(tag):
                make()
    touch(client, tag)


def touch(client: Any, tag: str) -> None:
    """An image was last used now: the engine remembers when it was last tagged."""
    client.api.tag(tag, *tag.split(":"))


def used(image: Any) -> float:
    """When that was, else when it was made. The engine says it to the nanosecond, at its own hour."""
    text = str((image.attrs.get("Metadata") or {}).get("LastTagTime") or "")
    text = image.attrs.get("Created", "") if text.startswith("0001") or not text else text
    return datetime.fromisoformat(text).timestamp()


def clear(client: Any, images: Iterable[Any], say: Say, now: float) -> None:
    """Remove superseded images of ours that were unused for long. The engine keeps what a container stands on."""
    from docker.errors import APIError

    for image in images:
        for tag in image.tags if now - used(image) > UNUSED_S else ():
            if tag.rpartition("/")[2].startswith("agent-harness-"):
                with contextlib.suppress(APIError):
                    client.api.remove_image(tag)
                    say(f"removed the superseded image {tag}")


def said(*words: str, check: bool = False) -> str:
    """What a program of this machine prints, its exit code only looked at where `check` says so."""
    return subprocess.run(words, capture_output=True, text=True, check=check, timeout=60).stdout


def cache() -> Path:
    """This user's folder for what can be made again. Raises SandboxUnavailable."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-harness"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "image.lock").touch()
    except OSError as fault:
        raise SandboxUnavailable(f"cannot write {folder}", why=str(fault), next="set XDG_CACHE_HOME") from fault
    return folder


@contextlib.contextmanager
def one_builder(say: Say) -> Iterator[None]:
    """A file lock of this user, so that two processes do not build the same image at once."""
    lock = (cache() / "image.lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the sandbox image; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- from a registry ----------------------------------------------------------------------------------------


def dockerfile(base: str = BASE) -> str:
    """The recipe as a Dockerfile, for a base that has apt."""
    excludes = "".join(rf"path-exclude /usr/share/{path}\n" for path in _DROPPED)
    steps = [
        "set -e",
        f"printf '{excludes}' >/etc/dpkg/dpkg.cfg.d/99lean",
        "apt-get update",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {' '.join(PACKAGES)}",
        *_FINISH.splitlines(),
    ]
    return f"FROM {base}\nRUN {'; '.join(steps)}\n" + "\n".join(_CHANGES) + "\n"


# --- from the machine's own packages ------------------------------------------------------------------------


def _bootstrap(client: Any, say: Say) -> None:
    """Have mmdebstrap make a tar, and import it."""
    from docker.errors import DockerException

    if shutil.which("apt-get") is None:
        raise SandboxUnavailable(
            "no registry answers, and this machine has no apt to bootstrap a sandbox image from",
            next="set sandbox.image to an image this engine has, with bash, git and python3 in it",
        )
    suite, sources = package_sources()
    if not sources:
        say("this machine has no package lists yet; running apt-get update")
        _as_root("apt-get", "update")
        suite, sources = package_sources()
    if not sources:
        raise SandboxUnavailable(
            "apt on this machine knows no Debian or Ubuntu package source", next="check /etc/apt/sources.list"
        )
    if shutil.which("mmdebstrap") is None:
        say("installing mmdebstrap with apt-get")
        install = ("apt-get", "install", "-y", "--no-install-recommends", "mmdebstrap")
        try:
            _as_root(*install)
        except SandboxUnavailable:  # lists too old, mostly
            _as_root("apt-get", "update")
            _as_root(*install)
    say(f"bootstrapping {suite} with {len(PACKAGES)} packages")
    with tempfile.TemporaryDirectory(prefix="agent-harness-image-") as folder:
        conf = Path(folder) / "apt.conf"
        conf.write_text(_apt_settings())
        tar = Path(folder) / "image.tar"
        root = [] if shutil.which("newuidmap") else _sudo()  # a user with that can be root in a namespace of their own
        _run_bootstrap([*root, *_mmdebstrap(suite, conf), *sources], tar, say)
        try:
            client.api.import_image_from_file(str(tar), repository=OWN_IMAGE, changes=list(_CHANGES))
        except (DockerException, OSError) as fault:
            raise SandboxUnavailable(
                "importing the sandbox image failed", why=plain(fault), next="see the engine's log"
            ) from fault


def package_sources() -> tuple[str, list[str]]:
    """The suite and the one-line sources of this machine's own distribution, third-party ones left out."""
    form = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    shown = said("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    rows = [line.split("|") for line in shown.splitlines()]
    rows = [row for row in rows if len(row) == 4 and row[0] in {"Debian", "Ubuntu"} and row[3] in {"main", "universe"}]
    unique = sorted({(row[1], row[2], row[3]) for row in rows}, key=lambda row: (len(row[1]), row))
    return (unique[0][1] if unique else ""), [f"deb {uri} {suite} {component}" for uri, suite, component in unique]


def _mmdebstrap(suite: str, conf: Path) -> list[str]:
    """The command up to its sources. No apt inside the image: nothing could be fetched from in there anyway."""
    return [
        "mmdebstrap",
        "--variant=essential",
        f"--include={','.join(PACKAGES)}",
        f"--aptopt={conf}",
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{path}" for path in _DROPPED),
        f"--customize-hook=chroot \"$1\" sh -c '{_FINISH.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'",
        suite,
        "-",
    ]


def _apt_settings() -> str:
    """How this machine reaches its mirrors (proxies, certificates, clocks), and not what it lists or caches."""
    dump = said("apt-config", "dump")
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv")
    return "\n".join(line for line in dump.splitlines() if line.startswith(wanted)) + "\n"


def _run_bootstrap(command: list[str], tar: Path, say: Say) -> None:
    """Run it and relay its steps."""
    last: list[str] = []
    with (
        tar.open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE) as process,
    ):
        for raw in process.stderr or ():
            line = raw.decode("utf-8", "replace").strip()
            last[:] = [*last[-4:], line]
            if line.startswith("I: ") and "..." in line:
                say(line[3:])
    if process.returncode or not tar.stat().st_size:
        raise SandboxUnavailable(
            f"bootstrapping the sandbox image failed (mmdebstrap ended with {process.returncode})",
            why=" | ".join(last)[-400:],
            next="try `apt-get update`, or set sandbox.image to an image this engine has",
        )


def _sudo() -> list[str]:
    """What makes a command root's. Where there is a terminal sudo may ask on it, elsewhere it fails at once."""
    return [] if os.geteuid() == 0 else ["sudo"]


def _as_root(*command: str) -> None:
    """Run a package command as root, as soon as no other program holds apt's locks."""
    words = [*_sudo(), "env", "DEBIAN_FRONTEND=noninteractive", *command]
    end = time.monotonic() + APT_WAIT_S
    while True:
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if not done.returncode:
            return
        if "/lock" not in done.stderr or time.monotonic() > end:
            raise SandboxUnavailable(
                f"`{' '.join(command)}` failed",
                why=done.stderr.strip()[-300:],
                next="run it yourself as root, then again",
            )
        time.sleep(5)


def main() -> int:
    """Build the image if absent and print its name."""
    try:
        print(ensure(lambda text: print(text, file=sys.stderr, flush=True)))  # noqa: T201
    except SandboxUnavailable as fault:
        print(fault.line, file=sys.stderr)  # noqa: T201
        return int(fault.exit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
