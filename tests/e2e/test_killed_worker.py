"""`kill -9` in mid-run: the next run takes the item again, nothing is left behind, the log holds."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from agent_harness.errors import Exit
from agent_harness.types import ItemState
from e2e import scripts

pytestmark = pytest.mark.docker


def containers(run: str = "") -> list[str]:
    words = [
        "docker",
        "ps",
        "-a",
        "--format",
        "{{.Names}}",
        "--filter",
        "label=agent-harness.run" + (f"={run}" if run else ""),
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def start(desk, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agent_harness.cli.main", *words]
    return subprocess.Popen(
        command, cwd=desk.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def wait_for(predicate, seconds: float = 90.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := predicate():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")


def events(desk, item, kind):
    with desk.app() as app:
        return app.audit.events(item=item, kinds=[kind])


def test_the_next_run_takes_the_item_again(desk):
    hanging = [scripts.bash("ls"), {"hang": True}]
    with desk.serving(coder=hanging, critic=()):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
        process = start(desk, "run", "--item", item)
        wait_for(lambda: len(desk.server.requests) >= 2)
        run = events(desk, item, "run.started")[0].run
        assert containers(run)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings()
        with desk.app() as app:
            first, cut = app.audit.events(item=item, kinds=["model.asked"])
            (answered,) = app.audit.events(item=item, kinds=["model.answered"])
            spent = answered.data["nanousd"] + cut.data["worst"]["nanousd"]
            assert app.spending.spent()[item].nanousd == spent, (
                "a call that was cut off counts as the most it could have been"
            )
            assert first.data["call"] == answered.data["call"]
            report = desk.run(app, item)
            assert report.exit is Exit.OK, report.reason
            found = app.queue.get(item)
            assert (found.state, found.generation, found.losses) == (ItemState.DONE, 2, 1)
            assert app.audit.verify() == []
            asked = app.audit.events(run=run, kinds=["model.asked", "model.answered"])
            assert len([e for e in asked if e.kind == "model.asked"]) == 2
            assert len([e for e in asked if e.kind == "model.answered"]) == 1
    assert containers(run) == []
    assert not list((desk.folder / ".harness" / "trees").glob("*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_work(desk, number, code):
    coder = [scripts.edit("bill/split.py", scripts.SPLIT_FIX), scripts.bash("sleep 60")]
    with desk.serving(coder=coder, critic=()):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
        process = start(desk, "run", "--item", item, "--json")
        wait_for(lambda: len(events(desk, item, "command.started")) >= 2)
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code == json.loads(out)["runs"][0]["exit"], err.decode()
    assert time.monotonic() - began < 15
    with desk.app() as app:
        assert app.queue.get(item).state is ItemState.READY
        (captured,) = app.audit.events(item=item, kinds=["candidate.captured"])
        assert captured.data["files"] == 1
        assert app.audit.verify() == []
