"""A factory of real sandboxes for tests: workspaces in a temporary folder, owned by the user inside."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from agent_harness.types import Mode, Mount, SandboxSpec
from agent_harness_sandbox import build
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.conformance import Box
from agent_harness_sandbox.docker_engine import DockerEngine
from agent_harness_sandbox.doctor import runs_as
from agent_harness_sandbox.image import OWN_IMAGE
from agent_harness_sandbox.owner import LABEL, Owner
from agent_harness_sandbox.removal import BACKGROUND


def give(path: Path) -> None:
    """Let the sandbox's user own a tree."""
    if os.geteuid() == 0:
        for inner in [path, *path.rglob("*")]:
            os.chown(inner, *runs_as(), follow_symlinks=False)


class Factory:
    """Makes them, and closes all that it made."""

    def __init__(self, engine=None):
        self.engine = engine or DockerEngine()
        self.boxes = []
        self.folders = []

    def spec(self, mode=Mode.RW, files=None, folder=None, **changes):
        tree = Path(tempfile.mkdtemp(prefix="sandbox-test-")) / (folder or "tree")
        self.folders.append(tree.parent)
        tree.mkdir()
        for name, data in (files or {}).items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(data)
        give(tree)
        uid, gid = runs_as()
        given = {
            "image": OWN_IMAGE,
            "workdir": "/workspace",
            "uid": uid,
            "gid": gid,
            "memory": 768 << 20,
            "tmp_size": 192 << 20,
        }
        return SandboxSpec(mode=mode, mounts=(Mount(str(tree), "/workspace", mode is Mode.RO),), **{**given, **changes})

    def __call__(self, mode=Mode.RW, files=None, **changes):
        spec = self.spec(mode, files, **changes)
        box = Box(self.engine.start(spec), Path(spec.mounts[0].source), spec.uid)
        self.boxes.append(box)
        return box

    def close(self):
        for box in self.boxes:
            box.sandbox.close()
        BACKGROUND.wait(60)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make():
    """Sandboxes on the engine of this machine, gone with the test."""
    factory = Factory()
    yield factory
    factory.close()


@pytest.fixture
def client():
    """A connection to the engine."""
    with contextlib.closing(connect()) as client:
        yield client


def made(client, *projects):
    """The tags of the images that were made for these projects, and for no other test beside this one."""
    found = [client.images.list(filters={"label": f"{build.PROJECT}={build.whose(one)}"}) for one in projects]
    return {tag for images in found for image in images for tag in image.tags}


def ours(client, label=None):
    """This process's containers, or another label's, once the background has taken away what was closed."""
    assert BACKGROUND.wait(30)
    label = label or f"{LABEL}={Owner.current()}"
    return [row["Names"][0] for row in client.api.containers(all=True, filters={"label": label})]
