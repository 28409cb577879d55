"""Sandboxes on a Docker engine: create, prove, talk, remove. See DESIGN.md beside this file."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_harness.errors import HarnessError, SandboxLost, SandboxUnavailable
from agent_harness.ports import Finding
from agent_harness.types import Command, CommandEnd, CommandResult, ImagePlan, SandboxSpec
from agent_harness_sandbox import policy
from agent_harness_sandbox.channel import Channel
from agent_harness_sandbox.client import connect, plain
from agent_harness_sandbox.image import OWN_IMAGE, touch
from agent_harness_sandbox.owner import LABEL, Owner
from agent_harness_sandbox.podman import Podman
from agent_harness_sandbox.pool import Pool
from agent_harness_sandbox.removal import BACKGROUND
from agent_harness_sandbox.surroundings import Surroundings

NAME = "agent-harness-"
GRACE_S = 15.0
"""How long after a command's own deadline its result may take: the sweep, and the way back."""
LONGEST_S = 7 * 86_400.0
"""A deadline beyond this is this: the kernel counts it in a signed word of milliseconds."""
MAX_FILE = 64 << 20
MAX_IMAGE = 32 << 30
"""Unpacked. More than any tool chain needs is a mistake, and every set-up on it would hold as much again."""
MAX_KEEP = 16 << 20
API_S = 60
NO_SUCH = frozenset({errno.ENOENT, errno.ENOTDIR})
_STARTS = threading.BoundedSemaphore(max(2, min(8, 2 * (os.cpu_count() or 1))))
"""Starts at once in this process: more only make each other slow."""


class DockerSandbox:
    """One started container. One command at a time; another thread's waits for its turn."""

    def __init__(self, client: Any, name: str, around: Surroundings) -> None:
        self._client, self._name, self._spec, self._around = client, name, around.spec, around
        self._talk = threading.Lock()
        self._api = threading.Lock()
        self._channel: Channel | None = None
        self._why = ""
        self._closed = False
        self._made = False
        self._about: dict[str, Any] = {}

    def execute(self, command: Command) -> CommandResult:
        """Run one command. Raises SandboxLost when the sandbox, not the command, failed."""
        try:
            result = self._run(command)
        finally:
            self._around.tell()
        if result.end is not CommandEnd.EXITED or result.exit_code == 126:  # odd: can it still run anything at all?
            canary = self._run(Command("true", timeout_s=10, workdir="/"))
            if not canary.ok:
                raise self._lost(f"after a command ended as {result.end}, `true` ended as {canary.end}")
        return result

    def read_file(self, path: str, limit: int) -> bytes:
        """A regular file's bytes, through no link. Raises FileNotFoundError, ValueError or SandboxLost."""
        head, body = self._ask({"op": "read", "path": path, "limit": min(limit, MAX_FILE)}, b"", most=MAX_FILE)
        _raise_fault(head, path)
        return body

    def write_file(self, path: str, data: bytes) -> None:
        """Put `data` in a file's place. Raises ValueError, PermissionError or SandboxLost."""
        if len(data) > MAX_FILE:
            raise ValueError(f"{path} would be larger than {MAX_FILE} bytes")
        head, _ = self._ask({"op": "write", "path": path}, data)
        if head.get("fault") in NO_SUCH:
            raise ValueError(f"{path} cannot be created: {head['why']}")
        _raise_fault(head, path)

    def describe(self) -> dict[str, Any]:
        """What runs, for the log."""
        return dict(self._about)

    def close(self) -> None:
        """End everything inside; the container goes in the background. A command still running gets SandboxLost."""
        with self._api:
            if self._closed:
                return
            self._closed = True
        if self._made and self._end():
            BACKGROUND.put(self._remove)
        else:
            self._remove()

    def _end(self) -> bool:
        """Whether nothing lives inside any more: by the exec server's own sweep when it is idle, else by a kill."""
        from docker.errors import APIError

        if not self._why and self._channel is not None and self._talk.acquire(blocking=False):
            try:
                with contextlib.suppress(SandboxLost):
                    if "pong" in self._channel.ask({"op": "ping"}, b"", seconds=10, most=0)[0]:
                        self._channel.close()  # and with the stream ends process 1
                        return True
            finally:
                self._talk.release()
        with contextlib.suppress(APIError, OSError), self._api:
            self._client.api.kill(self._name)
            return True
        return False  # it does not run, or the engine is in trouble: removal tells

    def _remove(self) -> None:
        try:
            with self._api, contextlib.closing(self._client):
                self._around.close(lambda name: _remove(self._client, name))
                # a create that was broken off may still be on its way in the engine
                for _ in range(1 if self._made else 5):
                    _remove(self._client, self._name)
                    time.sleep(0 if self._made else 0.1)
        finally:
            if self._channel is not None:  # not before: another thread may still wait for its next byte
                self._channel.close()

    # --- below the port ---

    def open(self, image_id: str) -> None:
        """Create, compare, start, and prove from inside. Raises SandboxUnavailable or an engine's own error."""
        begun = time.monotonic()
        api = self._client.api
        body = policy.create_body(self._spec, image_id)
        container = api.create_container_from_config(body, self._name)["Id"]
        self._made = True
        sock = api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._channel = Channel(sock, self._look)
        account = api.account if isinstance(api, Podman) else api.inspect_container
        if found := policy.differences(self._spec, account(container)):
            self._why = "; ".join(found[:6])
            what = "the engine made a container without the asked profile"
            raise SandboxUnavailable(what, why=self._why, next=DOCTOR)
        api.start(container)
        self._channel.send(policy.execd())
        self.prove()
        self._around.begin(api, self._name, lambda image: _found(self._client, image), self._listening)
        self._about = {
            "container": container[:12],
            "name": self._name,
            "image": self._spec.image,
            "image_id": image_id,
            "services": [service.name for service in self._spec.services],
            **{name: getattr(self._spec, name) for name in ("mode", "network", "memory", "cpus", "pids", "tmp_size")},
            "exec": "lent python3" if policy.lends(self._spec) else "python3",
            "start_s": round(time.monotonic() - begun, 3),
        }

    def prove(self) -> None:
        """Ask the container what it is, and refuse it if that is not what was asked for."""
        places = list(policy.expected_places(self._spec))
        setup = {"op": "setup", "workspace": "/workspace", "save": self._spec.tmp_size // 4, "places": places}
        facts, _ = self._ask(setup, policy.relay_text() if self._spec.allow else b"")
        found = [str(facts["why"])] if "fault" in facts else policy.unproven(self._spec, facts)
        if found:
            raise SandboxUnavailable(
                "the sandbox is not what it must be", why=(why := "; ".join(found[:6])), next=_advice(why)
            )

    def _listening(self, port: int) -> bool:
        """Whether something accepts connections on a port of the sandbox's own loopback."""
        return self._run(Command(f"exec 3<>/dev/tcp/127.0.0.1/{port}", timeout_s=5, workdir="/")).ok

    def _run(self, command: Command) -> CommandResult:
        keep = max(1, min(command.keep, MAX_KEEP))
        request = {
            "op": "run",
            "workdir": command.workdir or self._spec.workdir,
            "env": dict(command.env),
            "timeout": min(command.timeout_s, LONGEST_S),
            "idle": min(command.idle_s, LONGEST_S),
            "keep": keep,
            "save": command.save,
        }
        script = command.script.encode("utf-8", "surrogateescape" if _escaped(command.script) else "replace")
        head, body = self._ask(request, script, seconds=min(command.timeout_s, LONGEST_S) + GRACE_S, most=2 * keep)
        if "fault" in head:
            raise self._lost(f"its exec server could not run a command: {head.get('why')}")
        try:
            cut = int(head["head"])
            return CommandResult(
                end=CommandEnd(head["end"]),
                exit_code=int(head["code"]),
                head=body[:cut],
                tail=body[cut:],
                total_bytes=int(head["total"]),
                seconds=float(head["seconds"]),
                saved_to=str(head["saved"]),
            )
        except (KeyError, ValueError, TypeError) as fault:
            raise self._lost("its exec server sent an answer without sense") from fault

    def _ask(
        self, head: dict[str, Any], body: bytes, *, seconds: float = 60.0, most: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """One request and its reply; the first failure is the last, for what comes later would be out of step."""
        with self._talk:
            if self._why or self._closed or self._channel is None:
                raise SandboxLost("the sandbox is gone", why=self._why or "it was closed")
            try:
                reply, data = self._channel.ask(head, body, seconds=seconds, most=most)
            except BaseException as fault:  # also an interrupt: its reply would be taken for the next one's
                self._why = fault.line if isinstance(fault, HarnessError) else type(fault).__name__
                raise
        if "broken" in reply:
            raise self._lost(str(reply["broken"]))
        return reply, data

    def _lost(self, why: str) -> SandboxLost:
        self._why = why
        return SandboxLost("the sandbox cannot be used any more", why=why)

    def _look(self) -> None:
        """Raise SandboxLost unless the engine says that the container runs."""
        from docker.errors import DockerException

        try:
            with self._api:
                if self._closed:
                    raise SandboxLost("the sandbox was closed")
                state = self._client.api.inspect_container(self._name)["State"]
        except (DockerException, OSError) as fault:
            raise SandboxLost("the sandbox is gone", why=plain(fault)) from fault
        if not state.get("Running") or state.get("Paused"):
            why = "out of memory" if state.get("OOMKilled") else f"it is {state.get('Status')}"
            raise SandboxLost("the sandbox does not run any more", why=f"{why}, exit code {state.get('ExitCode')}")


class DockerEngine:
    """Starts sandboxes on the engine that the user's own docker command would use.

    Safe to share between threads: every sandbox takes a client of its own. `owner` marks the containers and is
    this process unless a test says otherwise."""

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner or Owner.current()
        self._known: set[str] = set()
        """Content ids that were present and fitted; should one be gone, creating says so."""
        self._pool: Pool | None = None
        self._bare: set[str] = set()
        """Images that turned out to have no Python."""

    def start(self, spec: SandboxSpec) -> DockerSandbox:
        """A probed sandbox. Raises SandboxUnavailable, or UsageError for a spec no profile holds for; nothing is
        left behind then, nor on an interrupt."""
        policy.create_body(spec, "")
        with _unavailable("starting a sandbox failed"):
            found = self._pool.take(spec) if self._pool else None
        return found if isinstance(found, DockerSandbox) else self._begin(spec)

    def warm(self, size: int, folder: Path) -> None:
        """From the first start on, keep `size` more started, each on a folder beneath `folder` (see `room`)."""
        if size > 0 and self._pool is None:
            self._pool = Pool(self._begin, size, folder)

    def room(self, dest: Path) -> None:
        """Give a new workspace its place: where a sandbox waits, its own empty folder appears at `dest`, and a start
        on it is quick; else nothing happens."""
        if self._pool:
            self._pool.room(dest)

    def _begin(self, spec: SandboxSpec) -> DockerSandbox:
        from docker.errors import APIError

        spec = replace(spec, labels={**spec.labels, LABEL: str(self._owner)})
        with _STARTS, _unavailable("starting a sandbox failed"):
            if spec.image not in self._bare:
                try:
                    return self._open(spec)
                except APIError as fault:
                    if 'exec: "python3"' not in plain(fault):
                        raise
                self._bare.add(spec.image)
            return self._open(spec)

    def _open(self, spec: SandboxSpec) -> DockerSandbox:
        client = connect(API_S)
        around = Surroundings(spec, python=spec.image in self._bare)
        sandbox = DockerSandbox(client, NAME + secrets.token_hex(8), around)  # named before it is made
        try:
            image_id = spec.image if spec.image in self._known else self._resolve(client, spec.image)
            sandbox.open(image_id)
        except BaseException:
            with contextlib.suppress(SandboxLost):
                sandbox.close()
            raise
        return sandbox

    def image_id(self, image: str) -> str:
        """The content id of an image that is present and fits the engine."""
        with _unavailable("asking the engine for an image failed"), contextlib.closing(connect(API_S)) as client:
            return self._resolve(client, image)

    def _resolve(self, client: Any, image: str) -> str:
        found, _ = _found(client, image)
        if image == OWN_IMAGE:
            touch(client, image)
        self._known.add(found)
        return found

    def prepare(self, plan: ImagePlan, say: Callable[[str], None], stopped: Callable[[], bool]) -> str:
        """The content id of the image that a plan makes; what was made earlier from the same is taken."""
        from agent_harness_sandbox import build

        seconds = int(max(plan.timeout_s, build.PULL_S))
        with _unavailable("making the sandbox image failed"), contextlib.closing(connect(seconds)) as client:
            find = lambda image: _found(client, image)
            return build.prepare(build.Bench(client, find, str(self._owner), say, stopped), plan)

    def reap(self) -> list[str]:
        """Remove what dead owners left: same machine, and an earlier boot or a process that is gone."""
        removed = []
        with _unavailable("looking for left containers failed"), contextlib.closing(connect(API_S)) as client:
            rows = client.api.containers(all=True, filters={"label": LABEL})
            named = {row["Names"][0].lstrip("/") if row.get("Names") else row["Id"]: row["Labels"] for row in rows}
            for name in sorted(named, reverse=True):  # a service before the sandbox whose network it is in
                owner = Owner.parse(named[name].get(LABEL, ""))
                if owner is not None and name.startswith(NAME) and owner.dead(self._owner):
                    _remove(client, name)
                    removed.append(name)
        return removed

    def doctor(self, image: str) -> list[Finding]:
        """Try each promised property for real."""
        from agent_harness_sandbox.doctor import examine

        return examine(self, image)


DOCTOR = "run `agent-harness doctor`, which tries each property"
_IMAGE = "take an image that has bash and git, and python3 (3.9 or later) or none; `sandbox.image` names it"
_SEES = "the engine must run on this machine, or see the same folders; check DOCKER_HOST"
_ADVICE = (
    ("python3", _IMAGE),
    ("the image has no", _IMAGE),
    ("bind source path does not exist", _SEES),
    ("no such file or directory", _SEES),
    ("no seccomp filter", "a runtime that is not runc may have to be told to load it: runsc by --oci-seccomp"),
)


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    """Every failure of the engine, or of a sandbox that has not started yet, as SandboxUnavailable."""
    from docker.errors import DockerException

    try:
        yield
    except (SandboxLost, DockerException, OSError, subprocess.SubprocessError) as fault:
        why = plain(fault)
        raise SandboxUnavailable(what, why=why, next=_advice(why)) from fault


def _advice(why: str) -> str:
    return next((advice for sign, advice in _ADVICE if sign in why), DOCTOR)


def _found(client: Any, image: str) -> tuple[str, dict[str, Any]]:
    """An image's content id and its configuration. Raises SandboxUnavailable when it is absent or does not fit."""
    from docker.errors import ImageNotFound

    try:
        found = client.images.get(image)
    except ImageNotFound as fault:
        how = "python -m agent_harness_sandbox.image" if image == OWN_IMAGE else "agent-harness doctor --fix"
        raise SandboxUnavailable(f"the engine has no image {image}", next=f"run `{how}`") from fault
    wrong = image_problem(found.attrs, client.version())
    if wrong:
        raise SandboxUnavailable(f"image {image} {wrong}", next="take an image that fits")
    return str(found.id), found.attrs.get("Config") or {}


def image_problem(image: dict[str, Any], engine: dict[str, Any]) -> str:
    """Why an image cannot run natively on an engine, or is not to; empty when it can."""
    has, needs, size = image.get("Architecture", ""), engine.get("Arch", ""), image.get("Size") or 0
    if image.get("Os", "linux") != "linux":
        return f"is for {image['Os']}, not linux"
    if size > MAX_IMAGE:
        return f"has {size / (1 << 30):.1f} GiB, and the most is {MAX_IMAGE >> 30} GiB"
    return f"is for {has}, and the engine runs on {needs}" if has and needs and has != needs else ""


def _remove(client: Any, name: str) -> None:
    """Remove a container by name and see that it is gone. Raises SandboxLost when it stays."""
    from docker.errors import APIError, NotFound

    until = time.monotonic() + 20
    why = ""
    while time.monotonic() < until:
        try:
            client.api.remove_container(name, force=True, v=True)
        except NotFound:
            return
        except (APIError, OSError) as fault:  # a removal under way, or a slow engine: look again
            why = plain(fault)
            time.sleep(0.1)
    raise SandboxLost(f"container {name} cannot be removed", why=why, next=f"run `docker rm -f {name}`")


def _raise_fault(head: dict[str, Any], path: str) -> None:
    """An operation's error as the port has it."""
    if "fault" not in head:
        return
    number, why = head["fault"], head.get("why", "")
    if number in NO_SUCH:
        raise FileNotFoundError(errno.ENOENT, why, path)
    if number in {errno.EROFS, errno.EACCES, errno.EPERM}:
        raise PermissionError(number, why, path)
    raise ValueError(f"{path} {why}" if number == -1 else f"{path}: {why}")


def _escaped(script: str) -> bool:
    """Its lone surrogates, if any, are all bytes that a file name could not decode."""
    return all("\udc80" <= char <= "\udcff" for char in script if "\ud800" <= char <= "\udfff")
