"""The other ways in: recordings, URLs, dry runs, and what is refused before a model is asked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agent_harness.demo import RECORDING, make_repository
from agent_harness.errors import ConfigError, CredentialError, Exit, NothingToDo
from agent_harness.types import Allowance, Check, ItemState
from e2e import scripts
from e2e.conftest import Desk, git

pytestmark = pytest.mark.docker

REPLAY = """
import sys, threading
from pathlib import Path
from agent_harness.app import App
from agent_harness.config import load
loaded = load(Path(sys.argv[1]))
with App(loaded.config, loaded.root, replay=Path(sys.argv[2])) as app:
    report, = app.run(sys.argv[3], False, lambda event: None, threading.Event())
print(report.outcome, report.receipt["mode"], report.receipt["totals"]["nanousd"], "litellm" in sys.modules)
"""


def spend(report):
    totals = report.receipt["totals"]
    return totals["steps"], totals["tokens"], totals["nanousd"]


def test_a_recorded_run_replays_without_provider_or_litellm(desk, tmp_path):
    recording = tmp_path / "answers.jsonl"
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings()
        with desk.app(record=recording) as app:
            first = desk.run(app, desk.add(app, id="first"))
    assert first.exit is Exit.OK, first.reason
    with desk.app() as app:
        desk.add(app, id="second")
    words = [sys.executable, "-c", REPLAY, str(desk.folder), str(recording), "second"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.split() == ["delivered", "replay", str(first.receipt["totals"]["nanousd"]), "False"]
    same = [git(desk.folder, "rev-parse", f"harness/{name}^{{tree}}") for name in ("first", "second")]
    assert same[0] == same[1]


DEMO = """
import sys
from agent_harness.cli.main import guarded
code = guarded(["demo", "--json"])
print(code, "litellm" in sys.modules, "openai" in sys.modules, file=sys.stderr)
"""


def test_the_demonstration_takes_the_same_door(tmp_path):
    """From the command line to the delivered branch, in a process that never imports the provider's library."""
    words = [sys.executable, "-c", DEMO]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=240, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "0 False False"
    assert json.loads(done.stdout)["runs"][0]["receipt"]["mode"] == "replay"


def test_a_replay_asked_something_else_stops_and_says_where(tmp_path):
    folder = tmp_path / "bill"
    make_repository(folder)
    (folder / "bill" / "split.py").write_text((folder / "bill" / "split.py").read_text() + "\n# changed\n")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qam", "Change")
    desk = Desk(folder)
    with desk.app(replay=RECORDING) as app:
        report = desk.run(app, desk.add(app, title="Splitting a bill loses cents"))
    assert (report.exit, report.outcome) == (Exit.INCONCLUSIVE, "inconclusive")
    assert "message" in report.reason
    assert "recorded" in report.reason


@pytest.mark.parametrize("kind", ["bare", "file-url"])
def test_other_sources(desk, tmp_path, kind):
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(desk.folder), str(bare)], check=True)
    source = str(bare) if kind == "bare" else bare.as_uri()
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings()
        text = (desk.folder / "harness.toml").read_text()
        (desk.folder / "harness.toml").write_text(text.replace("[project]\n", f'[project]\nsource = "{source}"\n'))
        with desk.app() as app:
            report = desk.run(app, desk.add(app))
    assert report.exit is Exit.OK, report.reason
    assert git(bare, "rev-parse", report.branch) == report.commit
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


def test_a_dry_run_asks_no_model_and_changes_nothing(desk):
    with desk.serving(coder=scripts.IMPLEMENTER):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
            before = app.audit.root()
            plan = app.dry_run(item)
            assert app.audit.root() == before
            assert app.queue.get(item).state is ItemState.READY
        assert desk.server.requests == []
    assert plan.base == git(desk.folder, "rev-parse", "HEAD")
    assert [(report.passed, report.broken) for report in plan.checks] == [(False, "")]
    assert plan.problems == ()
    assert plan.worst_nanousd == plan.limits.nanousd > 0
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("no-such-tool --run", "a program is missing"),
        ("python3 -m pytest -q tests/nowhere.py", "cannot run on the base"),
        ("python3 -m pytest -q -k nothing_is_called_this", "collected no tests"),
        ("true", "no test can be counted"),
    ],
)
def test_a_check_that_cannot_run_is_said_before_a_model_is_paid(desk, check, words):
    with desk.serving(coder=scripts.IMPLEMENTER):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app, checks=(Check(check),))
            report = desk.run(app, item)
            assert app.queue.get(item).state is ItemState.HELD
        assert desk.server.requests == []
    assert report.exit is Exit.HELD
    assert words in report.reason


def test_fewer_tests_stop_delivery_unless_asked_for(desk):
    coder = [
        scripts.bash(scripts.TESTS),
        scripts.edit("bill/split.py", scripts.SPLIT_FIX),
        scripts.bash("git rm -q tests/test_money.py"),
        scripts.done(),
    ]
    with desk.serving(coder=coder, critic=()):
        desk.settings(keep="[]")
        with desk.app() as app:
            report = desk.run(app, desk.add(app))
    assert report.exit is Exit.FAILED
    assert "tests.test_money::test_reads_amounts" in report.reason
    with desk.serving(coder=coder, critic=scripts.REVIEWER):
        desk.settings(keep="[]")
        with desk.app() as app:
            asked = desk.run(app, desk.add(app, allow=(Allowance.FEWER_TESTS,)))
    assert asked.exit is Exit.OK, asked.reason


def test_what_is_missing_is_said_before_an_item_is_touched(desk, monkeypatch):
    desk.settings()
    with desk.app() as app:
        item = desk.add(app)
        monkeypatch.delenv("SCRIPTED_KEY")
        with pytest.raises(CredentialError, match="SCRIPTED_KEY"):
            desk.run(app, item)
        assert app.queue.get(item).generation == 0
    text = (desk.folder / "harness.toml").read_text()
    (desk.folder / "harness.toml").write_text(text.replace("price = ", "# price = "))
    monkeypatch.setenv("SCRIPTED_KEY", "sk-scripted-0123456789")
    with desk.app() as app:
        with pytest.raises(ConfigError, match="price"):
            desk.run(app, item)
        assert app.queue.get(item).generation == 0


def test_an_empty_queue_is_nothing_to_do(desk):
    desk.settings()
    with desk.app() as app, pytest.raises(NothingToDo, match="queue add"):
        desk.run(app)


def test_a_refused_key_gives_the_item_back(desk):
    refused = [{"status": 401, "body": json.loads('{"error": {"message": "bad key", "code": "invalid_api_key"}}')}]
    with desk.serving(coder=refused):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app)
            report = desk.run(app, item)
            found = app.queue.get(item)
        assert len(desk.server.requests) == 1
    assert report.exit is Exit.CREDENTIALS
    assert (found.state, found.failures) == (ItemState.READY, 0)
