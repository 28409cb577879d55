"""Trees and sandboxes of one run: what is laid out on the host, mounted where, and taken away again."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from agent_harness.config import Sandbox as SandboxSettings
from agent_harness.errors import Cancelled, SandboxLost
from agent_harness.logs import logger
from agent_harness.mounts import CACHES, caches
from agent_harness.ports import Clock, Recorder, Sandbox, SandboxEngine
from agent_harness.types import Candidate, ImagePlan, Mode, Mount, SandboxSpec, Service
from agent_harness.types.kinds import Kind
from agent_harness.workspace import Checkout, HarnessRepository, locked, spread
from agent_harness.workspace.folders import closing

WORKSPACE = "/workspace"
BASE = "/base"
WATCH_S = 0.2
_SHOWN = 5
_AS_SET = ("memory", "cpus", "pids", "tmp_size", "network", "allow", "runtime")
"""What of a sandbox is as the configuration says."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What every sandbox of a run has in common. `image` is a content id, or a reference where the image is made from
    the base; `user` its uid and gid; `mounts` what the project declares; `state` where its package caches are."""

    settings: SandboxSettings
    image: str
    user: tuple[int, int]
    labels: dict[str, str]
    state: Path
    mounts: tuple[Mount, ...] = ()
    services: tuple[Service, ...] = ()


class Stage:
    """Lays out checkouts below one private folder and starts sandboxes on them. `close` removes the folder."""

    def __init__(
        self,
        folder: Path,
        repository: HarnessRepository,
        engine: SandboxEngine,
        *,
        shape: Shape,
        recorder: Recorder,
        clock: Clock,
        stop: threading.Event,
    ) -> None:
        self._folder, self._repository, self._engine = folder, repository, engine
        self._shape, self.image = shape, shape.image
        self._recorder, self._clock, self._stop = recorder, clock, stop
        self._base, self._said = "", set[str]()
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        spread(folder.parent)
        self._held = hold(folder)

    def close(self) -> None:
        """Remove every checkout of this run, whatever modes the sandbox left on them."""
        self._repository.rest()
        with self._held:
            remove_tree(self._folder)

    @staticmethod
    def clear(folder: Path) -> list[str]:
        """Remove the folders of stages whose process is gone; returns their names."""
        gone = []
        for place in folder.glob("*"):
            with suppress(BlockingIOError, FileNotFoundError), locked(place):
                remove_tree(place)
                gone.append(place.name)
        return gone

    def prepare(self, base: str) -> None:
        """Settle the image of every sandbox of this run: where it is made, from the base and nothing else.

        Raises SandboxUnavailable, ConfigError, Cancelled."""
        self._base, settings, shape = base, self._shape.settings, self._shape
        if not settings.made:
            return
        began, tree = self._clock.monotonic(), self._folder / "image"
        self._repository.materialise(base, tree, uid=shape.user[0], gid=shape.user[1], with_git=bool(settings.setup))
        plan = ImagePlan(
            tree=str(tree),
            reference=shape.image,
            dockerfile=settings.dockerfile or "",
            devcontainer=settings.devcontainer or "",
            devcontainer_env=settings.devcontainer_env or (),
            setup=settings.setup,
            setup_files=settings.setup_files,
            network=settings.setup_network,
            allow=settings.setup_allow,
            env={name: value for cache in settings.caches for name, value in CACHES[cache].items()},
            caches=caches(settings.caches, shape.state, read_only=False),
            user=shape.user,
            timeout_s=settings.setup_timeout_s,
            project=str(shape.state),
        )
        try:
            self.image = self._engine.prepare(plan, lambda text: logger().warning(text), self._stop.is_set)
        finally:
            remove_tree(tree)
        seconds = round(self._clock.monotonic() - began, 3)
        self._recorder.event(Kind.IMAGE_READY, {"image": self.image, "base": base, "seconds": seconds})

    def lay(self, commit: str, name: str, mode: Mode = Mode.RW) -> Path:
        """A checkout of a commit with a disposable `.git`, owned by the sandbox's user."""
        tree = self._folder / name
        remove_tree(tree)
        if mode is Mode.RW:  # only writable ones are started ahead
            self._engine.room(tree)
        uid, gid = self._shape.user
        made = self._repository.materialise(commit, tree, uid=uid, gid=gid)
        if commit == self._base:
            self._say(made)
            self._repository.lay_ahead(commit, uid=uid, gid=gid)
        return tree

    def _say(self, made: Checkout) -> None:
        """What a tree lacks of what its repository stands for, once a run."""
        lacks = {"submodules are empty folders": made.submodules, "files are Git LFS pointers": made.pointers}
        for what, paths in lacks.items():
            if paths and what not in self._said:
                self._said.add(what)
                logger().warning(f"{what} in work trees, and nothing is fetched for them", paths=list(paths[:_SHOWN]))

    @contextmanager
    def sandbox(self, purpose: str, mode: Mode, *mounts: Mount) -> Iterator[Sandbox]:
        """A started sandbox, gone at the end. Raises SandboxUnavailable."""
        starting = {"purpose": purpose, "mode": mode, "image": self.image}
        self._recorder.event(Kind.SANDBOX_STARTING, starting)
        began = self._clock.monotonic()
        sandbox = self._engine.start(self._spec(purpose, mode, mounts))
        try:
            facts = sandbox.describe()
            told = {"purpose": purpose, "container": facts.get("container", ""), "image": facts.get("image", "")}
            seconds = round(self._clock.monotonic() - began, 3)
            self._recorder.event(Kind.SANDBOX_READY, told | {"seconds": seconds})
            with closed_when(self._stop, sandbox):
                yield sandbox
        except SandboxLost as error:
            if self._stop.is_set():
                raise Cancelled("stopped by a signal or a lost claim") from error
            raise
        finally:
            closed = shut(sandbox)
        if closed:
            self._recorder.event(Kind.SANDBOX_CLOSED, {"purpose": purpose, "container": told["container"]})

    @contextmanager
    def _laid(self, commit: str, name: str, mode: Mode, target: str) -> Iterator[Mount]:
        """A checkout for a sandbox, gone at the end."""
        tree = self.lay(commit, name, mode)
        try:
            yield Mount(str(tree), target, read_only=mode is Mode.RO)
        finally:
            remove_tree(tree)

    @contextmanager
    def checkout(self, commit: str, purpose: str) -> Iterator[Sandbox]:
        """A fresh writable sandbox on a fresh checkout of exactly this commit: where checks are run."""
        with self._laid(commit, purpose, Mode.RW, WORKSPACE) as tree, self.sandbox(purpose, Mode.RW, tree) as sandbox:
            yield sandbox

    @contextmanager
    def review(self, candidate: Candidate) -> Iterator[tuple[Sandbox, Callable[[], bool]]]:
        """A read-only sandbox on the candidate with its base beside it, and a check that the tree is untouched."""
        laid, commit = self._laid(candidate.base, "review-base", Mode.RO, BASE), candidate.commit
        with laid as base, self.study(commit, "reviewer", base) as (sandbox, unchanged):
            yield sandbox, lambda: unchanged() and self._as_laid(candidate.base, base)

    @contextmanager
    def study(self, commit: str, purpose: str, *beside: Mount) -> Iterator[tuple[Sandbox, Callable[[], bool]]]:
        """A read-only sandbox on a commit, and a check that its tree is untouched."""
        laid = self._laid(commit, purpose, Mode.RO, WORKSPACE)
        with laid as tree, self.sandbox(purpose, Mode.RO, tree, *beside) as sandbox:
            yield sandbox, lambda: self._as_laid(commit, tree)

    def _as_laid(self, commit: str, tree: Mount) -> bool:
        """Whether a checkout still holds its commit, and nothing beside it that git would ignore."""
        found = self._repository.capture(commit, Path(tree.source), keep_as="", message="after a study")
        return found.empty and not found.ignored

    def _spec(self, purpose: str, mode: Mode, mounts: tuple[Mount, ...]) -> SandboxSpec:
        config, (uid, gid) = self._shape.settings, self._shape.user
        # what the implementer can write to, no judge sees
        shown = [one for one in self._shape.mounts if one.read_only or purpose == "implementer"]
        return SandboxSpec(
            mode=mode,
            image=self.image,
            workdir=WORKSPACE,
            mounts=(*mounts, *shown, *caches(config.caches, self._shape.state, read_only=True)),
            labels=self._shape.labels,
            env={name: value for cache in config.caches for name, value in CACHES[cache].items()},
            denied=lambda one: self._denied(purpose, one),
            gpus=config.gpus or "",
            services=self._shape.services,
            uid=uid,
            gid=gid,
            **{name: getattr(config, name) for name in _AS_SET},
        )

    def _denied(self, purpose: str, refused: dict[str, Any]) -> None:
        self._recorder.event(Kind.NETWORK_DENIED, {"where": purpose, **refused})


@contextmanager
def closed_when(stop: threading.Event, sandbox: Sandbox) -> Iterator[None]:
    """Close the sandbox as soon as `stop` is set, so that no long command outlives a signal."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_S):
            if stop.is_set():
                shut(sandbox)
                return

    watcher = threading.Thread(target=watch, name="stop-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def shut(sandbox: Sandbox) -> bool:
    """Close a sandbox; False where the engine did not do it. That takes nothing from what was done inside, and the
    next run takes the container away."""
    try:
        sandbox.close()
    except SandboxLost as error:
        logger().warning("a container was left behind", why=error.line)
        return False
    return True


def hold(folder: Path) -> ExitStack:
    """Make a folder that `Stage.clear` leaves alone until this is closed or the process is gone."""
    folder.mkdir(mode=0o700, exist_ok=True)
    held = ExitStack()
    held.enter_context(locked(folder))
    return held


def remove_tree(path: Path) -> None:
    """Remove a folder that a sandbox wrote, however deep: folders are brought up one by one, for neither a recursion
    nor a path reaches the lowest. Links are removed, never followed, and every folder is held by its descriptor: a
    sandbox that still runs cannot put a link in its place meanwhile. Closed folders are opened first."""
    if path.is_symlink() or not path.is_dir():
        return
    with closing(_unlocked(path)) as top:
        todo = _emptied(top, top)
        for name in todo:  # it grows meanwhile
            with closing(_unlocked(name, top)) as folder:
                todo += _emptied(folder, top)
            os.rmdir(name, dir_fd=top)
    path.rmdir()


def _emptied(folder: int, top: int) -> list[str]:
    """Remove what is in a folder but its folders; these are moved to the top, and their new names given."""
    names = list[str]()
    for one in list(os.scandir(folder)):
        if one.is_dir(follow_symlinks=False):
            os.close(_unlocked(one.name, folder))  # only who may write in it may move it
            names.append(uuid4().hex)
            os.rename(one.name, names[-1], src_dir_fd=folder, dst_dir_fd=top)
        else:
            os.unlink(one.name, dir_fd=folder)
    return names


def _unlocked(name: Path | str, parent: int | None = None) -> int:
    """A folder's descriptor, its owner's rights given back first."""
    seen = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    with closing(seen):
        held = f"/proc/self/fd/{seen}"  # itself, whatever its name leads to by now
        os.chmod(held, stat.S_IRWXU)  # noqa: PTH101
        return os.open(held, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
