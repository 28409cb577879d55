"""Sandboxes started ahead: quick, the same as others, on the right workspace, and gone in the end."""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_harness.types import Command, Mode, Mount
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.docker_engine import DockerEngine
from agent_harness_sandbox.owner import LABEL, Owner
from agent_harness_sandbox.removal import BACKGROUND
from sandboxes import Factory, give

pytestmark = pytest.mark.docker


@pytest.fixture
def engine(tmp_path):
    engine = DockerEngine()
    engine.warm(2, tmp_path / "warm")
    yield engine
    engine._pool.close()


@pytest.fixture
def make(engine):
    factory = Factory(engine)
    yield factory
    factory.close()


def waiting(engine, count):
    until = time.monotonic() + 20
    while len(engine._pool._waiting) < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def lay(engine, spec, tmp_path, name, mode=Mode.RW):
    """A spec on a workspace laid out as a stage does it."""
    dest = tmp_path / name
    engine.room(dest)
    made = dest.exists()
    dest.mkdir(exist_ok=True)
    assert list(dest.iterdir()) == []
    (dest / "who").write_text(name)
    give(dest)
    return replace(spec, mode=mode, mounts=(Mount(str(dest), "/workspace", mode is Mode.RO),)), made


def test_one_that_waits_is_quick_and_sees_its_own_workspace(engine, make, tmp_path):
    make().alive()
    waiting(engine, 2)
    for number in range(3):
        spec, made = lay(engine, make.spec(), tmp_path, f"tree{number}")
        assert made
        spec = replace(spec, labels={"agent-harness.run": f"r{number}"})
        begun = time.perf_counter()
        with contextlib.closing(engine.start(spec)) as sandbox:
            result = sandbox.execute(Command("cat who; echo changed >new; git init -q .", timeout_s=10))
            seconds = time.perf_counter() - begun
            assert result.head == f"tree{number}".encode()
            assert (tmp_path / f"tree{number}" / "new").read_text() == "changed\n"
            assert sandbox.read_file("who", 100) == f"tree{number}".encode()
            assert seconds < 0.15, "a start takes twice as long"
        waiting(engine, 1)


def test_what_does_not_fit_starts_as_ever(engine, make, tmp_path):
    make().alive()
    waiting(engine, 2)
    spec, made = lay(engine, make.spec(), tmp_path, "reviewed", Mode.RO)
    with contextlib.closing(engine.start(spec)) as sandbox:
        assert made
        assert not sandbox.execute(Command("touch x", timeout_s=10)).ok
    spec, _ = lay(engine, make.spec(pids=99), tmp_path, "other")
    with contextlib.closing(engine.start(spec)) as sandbox:
        assert sandbox.execute(Command("cat who", timeout_s=10)).head == b"other"
    assert engine._pool._given == {}


def test_one_that_died_while_it_waited_is_not_handed_out(engine, make, tmp_path):
    make().alive()
    waiting(engine, 2)
    with contextlib.closing(connect()) as client:
        for spare in list(engine._pool._waiting):
            client.api.kill(spare.sandbox.describe()["name"])
    spec, _ = lay(engine, make.spec(), tmp_path, "tree")
    with contextlib.closing(engine.start(spec)) as sandbox:
        assert sandbox.execute(Command("cat who", timeout_s=10)).head == b"tree"


def test_nothing_waits_on_after_the_end(engine, make, tmp_path):
    make().alive()
    waiting(engine, 2)
    lay(engine, make.spec(), tmp_path, "never-used")
    make.close()
    engine._pool.close()
    assert BACKGROUND.wait(30)
    with contextlib.closing(connect()) as client:
        assert client.api.containers(all=True, filters={"label": f"{LABEL}={Owner.current()}"}) == []
    assert not (tmp_path / "warm").exists()


def test_a_process_that_ends_leaves_none(tmp_path):
    script = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from sandboxes import Factory; from pathlib import Path\n"
        "from agent_harness_sandbox.owner import Owner\n"
        f"factory = Factory(); factory.engine.warm(1, Path({str(tmp_path / 'warm')!r}))\n"
        "factory(); time.sleep(1); factory.close(); print(Owner.current())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    with contextlib.closing(connect()) as client:
        assert client.api.containers(all=True, filters={"label": f"{LABEL}={done.stdout.strip()}"}) == []
    assert not os.path.exists(tmp_path / "warm")
