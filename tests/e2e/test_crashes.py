"""A process that ends, or a machine that refuses, at an arrow of the pipeline: nothing is lost or delivered twice."""

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_harness.errors import AuditError, Exit
from agent_harness.types import ItemState
from e2e import scripts
from e2e.conftest import git
from e2e.test_killed_worker import containers

pytestmark = pytest.mark.docker

CODER = [scripts.edit("bill/split.py", scripts.SPLIT_FIX), scripts.done()]
CRITIC = [scripts.bash("cat bill/split.py"), scripts.verdict(), scripts.after_story()]
KILLED = """
import os, signal, sys, threading
from pathlib import Path
from agent_harness.app import App
from agent_harness.config import load
def listen(event):
    if event.kind == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
loaded = load(Path(sys.argv[1]))
with App(loaded.config, loaded.root) as app:
    app.run(None, False, listen, threading.Event())
"""


def killed_at(desk, kind: str) -> str:
    """The id of an item whose first run was killed as soon as an event of this kind was written."""
    with desk.serving(coder=CODER, critic=CRITIC):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
        words = [sys.executable, "-c", KILLED, str(desk.folder), kind]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -9, done.stderr
    return item


def run_again(desk, item: str, listen=lambda event: None):
    """The report of the next run, and how often a model was asked in it. Nothing is left behind, the log holds."""
    with desk.serving(coder=CODER, critic=CRITIC):
        desk.settings()
        with desk.app() as app:
            (report,) = app.run(None, False, listen, threading.Event())
            found, problems = app.queue.get(item), app.verify()
            runs = {event.run for event in app.audit.events(item=item)} - {""}
        asked = len(desk.server.requests)
    assert (report.exit, found.state, problems) == (Exit.OK, ItemState.DONE, []), report.reason
    assert [name for run in runs for name in containers(run)] == []
    assert list((desk.folder / ".harness" / "trees").iterdir()) == []
    return report, asked


def intended(desk, item: str) -> str:
    with desk.app() as app:
        (event,) = app.audit.events(item=item, kinds=["delivery.intended"])
    return event.data["new"]


def land(desk, commit: str, branch: str) -> None:
    """What a delivery does last."""
    ours: Path = desk.folder / ".harness" / "repository.git"
    git(desk.folder, "fetch", "-q", str(ours), commit)
    git(desk.folder, "update-ref", f"refs/heads/{branch}", commit, "")


@pytest.mark.parametrize(("kind", "again"), [("candidate.captured", 5), ("delivery.landed", 0)])
def test_what_a_killed_run_had_not_done_is_done_by_the_next(desk, kind, again):
    item = killed_at(desk, kind)
    report, asked = run_again(desk, item)
    assert asked == again
    assert git(desk.folder, "rev-parse", f"harness/{item}") == report.commit
    assert git(desk.folder, "rev-list", "--count", f"main..harness/{item}") == "1"


def test_a_delivery_is_known_where_somebody_has_gone_on_from_it_already(desk):
    item = killed_at(desk, "delivery.intended")
    commit = intended(desk, item)
    land(desk, commit, f"harness/{item}")
    git(desk.folder, "merge", "-q", "--ff-only", f"harness/{item}")
    git(desk.folder, "branch", "-D", f"harness/{item}")
    report, asked = run_again(desk, item)
    assert (report.commit, asked) == (commit, 0)
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


def test_a_run_that_was_given_up_and_delivers_all_the_same_is_no_stranger(desk):
    item = killed_at(desk, "delivery.intended")
    commit = intended(desk, item)

    def first_goes_on(event):
        if event.kind == "delivery.intended":
            land(desk, commit, f"harness/{item}")

    report, _ = run_again(desk, item, first_goes_on)
    assert report.commit == commit == git(desk.folder, "rev-parse", f"harness/{item}")
    assert "an earlier run" in report.reason


def test_a_log_that_takes_nothing_costs_no_attempt(desk):
    def refuse(event):
        if event.kind == "model.asked":
            words = "WHEN NEW.kind = 'model.answered' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            _sql(desk, f"CREATE TRIGGER refuse BEFORE INSERT ON event {words}")

    with desk.serving(coder=CODER, critic=CRITIC):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
            with pytest.raises(AuditError, match=r"model\.answered could not be written.*the disk is full"):
                app.run(None, False, refuse, threading.Event())
            found = app.queue.get(item)
    assert (found.state, found.losses, found.failures) == (ItemState.READY, 0, 0)
    assert "could not be written" in found.reason
    _sql(desk, "DROP TRIGGER refuse")
    run_again(desk, item)


def _sql(desk, words: str) -> None:
    with sqlite3.connect(desk.folder / ".harness" / "harness.db") as database:
        database.execute(words)
    database.close()


def test_a_store_that_is_taken_away_in_mid_run_is_said(desk):
    """A file that was removed can be written to until it is closed; nobody would ever read it."""

    def take(event):
        if event.kind == "run.started":
            (desk.folder / ".harness" / "harness.db").unlink()

    with desk.serving(coder=CODER, critic=CRITIC):
        desk.settings()
        with desk.app() as app:
            desk.add(app)
            with pytest.raises(AuditError, match="removed or replaced"):
                app.run(None, False, take, threading.Event())
        assert desk.server.requests == []
    assert git(desk.folder, "branch", "--list", "harness/*") == ""
