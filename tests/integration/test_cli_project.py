"""The commands that ask no model: init, queue, audit and config on a real project with a real store."""

import io
import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest

from agent_harness.app import App
from agent_harness.cli import main
from agent_harness.config import load
from agent_harness.types import Settlement, Spend
from agent_harness.types.kinds import Kind
from fakes.spenders import role


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """Runs a command in a project of its own; gives back its code, stdout and stderr."""
    folder = tmp_path / "a työ"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):
        if name.startswith("AGENT_HARNESS_"):
            monkeypatch.delenv(name)

    def command(*words):
        capfd.readouterr()
        code = main.guarded(list(words))
        return code, *capfd.readouterr()

    return command


def data(cli, *words):
    code, out, err = cli(*words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def checked(cli, tmp_path):
    (tmp_path / "a työ" / "harness.toml").write_text('[project]\nchecks = ["make test"]\n[limits]\nusd = 3\n')
    return cli


def test_init_writes_what_config_reads_and_git_does_not_see_the_state(cli, tmp_path):
    folder = tmp_path / "a työ"
    (folder / "tests").mkdir()
    (folder / "tests" / "test_a.py").write_text("import pytest\n")
    code, out, err = cli("init")
    assert (code, out) == (0, f"{folder}/harness.toml\n") and "next: " in err
    values = data(cli, "config", "show")["values"]
    assert values["project.checks"] == [{"run": "python3 -m pytest -q", "kind": "tests", "timeout_s": 600.0}]
    seen = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True)
    assert ".harness" not in seen.stdout
    assert cli("init")[0] == 2


@pytest.mark.parametrize(
    ("text", "command"),
    [("def test_a():\n    assert 1\n", "python3 -m pytest -q"), ("import unittest\n", "python3 -m unittest discover")],
    ids=["functions", "classes"],
)
def test_init_names_the_runner_that_sees_the_tests(cli, tmp_path, text, command):
    (tmp_path / "a työ" / "test_a.py").write_text(text)
    assert json.loads(cli("init", "--json")[1])["checks"] == [command]


def test_doctor_finds_a_route_without_a_price_and_leaves_nothing_where_no_repository_is(checked, tmp_path):
    folder = tmp_path / "a työ"
    with (folder / "harness.toml").open("a") as file:
        file.write('[routes.main]\nmodel = "openai/mine"\nbase_url = "http://127.0.0.1:9/v1"\n')
    (folder / ".git").rename(tmp_path / "gone")
    code, out, _ = checked("doctor")
    assert code == 3 and "the price of openai/mine at its base_url is not known" in out and "is not a git repo" in out
    assert not (folder / ".harness").exists()


def test_doctor_finds_a_base_that_is_not_there(checked, tmp_path):
    folder = tmp_path / "a työ"
    assert "has no commits yet" in checked("doctor")[1]
    committed(folder)
    code, out, _ = checked("doctor", "--set", "project.base=mian")
    assert code == 3 and "FAIL  repository" in out and "has no commit named 'mian'" in out


def test_json_before_the_command_is_refused_and_not_left_unheeded(cli):
    code, out, _ = cli("--json", "queue", "list")
    assert code == 2 and "COMMAND --json" in json.loads(out)["error"]["next"]


def test_inits_commented_route_is_right_when_it_is_uncommented(cli, tmp_path):
    assert cli("init", "--check", "make test")[0] == 0
    path = tmp_path / "a työ" / "harness.toml"
    text = path.read_text()
    above, route = text.split("# [routes.main]")
    path.write_text(above + re.sub("^# ", "", "# [routes.main]" + route, flags=re.MULTILINE))
    config = load(path.parent, env={}).config
    assert config.routes["main"].api_key_env == "OPENAI_API_KEY" and config.routes["main"].price is not None


def test_what_config_show_prints_is_a_configuration_of_the_same_values(checked, tmp_path):
    before = data(checked, "config", "show")
    _, out, _ = checked("config", "show", "--origin")
    assert 'limits.usd = "3"  # harness.toml' in out and "limits.steps = 80  # default" in out
    (tmp_path / "a työ" / "harness.toml").write_text(out)
    assert data(checked, "config", "show")["digest"] == before["digest"]


def committed(folder):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "first"], cwd=folder, check=True)
    subprocess.run(["git", "branch", "-M", "main"], cwd=folder, check=True)


def test_a_base_that_is_not_there_is_told_when_it_is_queued(checked, tmp_path):
    committed(tmp_path / "a työ")
    code, _, err = checked("queue", "add", "Fix it", "--base", "mian")
    assert code == 2 and "has no commit named 'mian'. Next: did you mean main?" in err
    assert data(checked, "queue", "list") == []


def test_the_list_says_until_when_an_item_waits_why_and_what_it_has_spent(checked, tmp_path):
    waiting, plain = checked("queue", "add", "Fix it")[1].strip(), checked("queue", "add", "Other")[1].strip()
    loaded = load(tmp_path / "a työ", env={})
    with App(loaded.config, loaded.root) as app:
        limits = app.config.limits.limits
        app.spending.budget("r", waiting, limits, role(limits)).reserve(Spend(1, 2, 1_500_000_000))
        claim = app.queue.claim("w", "r", item=waiting)
        app.queue.settle(claim, Settlement.DEFERRED, reason="no answer", not_before_ms=4_102_444_800_000)
    lines = checked("queue", "list")[1].splitlines()
    assert lines[1].split() == [plain, "ready", "0", "0/0", "$0.0000", "of", "$3.0000", "Other"]
    assert "ready at 2100-01-01 00:00:00 UTC" in lines[2] and "$1.5000 of $3.0000  Fix it: no answer" in lines[2]
    assert data(checked, "queue", "list")[1]["spent"] == {"steps": 1, "tokens": 2, "nanousd": 1_500_000_000}
    assert "spent       $1.5000 of $3.0000\n" in checked("queue", "show", waiting)[1]


def test_an_item_is_queued_as_it_was_told(checked, tmp_path, monkeypatch):
    committed(tmp_path / "a työ")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Lue tämä.\n\nKaikki.".encode())))
    words = ["--check", "a && b", "--command", "ruff check", "--usd", "0.5", "--priority", "7", "--key", "k",
             "--base", "main", "--allow", "new-skips", "--allow-path", "*.toml", "--brief-file", "-"]  # fmt: skip
    item = data(checked, "queue", "add", "Työ 日本", *words)
    assert item | {"created_ms": 0, "updated_ms": 0} == {
        "id": item["id"],
        "title": "Työ 日本",
        "brief": "Lue tämä.\n\nKaikki.",
        "state": "ready",
        "checks": [
            {"command": "a && b", "kind": "tests", "timeout_s": 600.0, "no_worse": False},
            {"command": "ruff check", "kind": "command", "timeout_s": 600.0, "no_worse": False},
        ],
        "limits": {"steps": 80, "tokens": 3_000_000, "nanousd": 500_000_000, "seconds": 3600.0},
        "depends_on": [],
        "priority": 7,
        "key": "k",
        "base": "main",
        "allow": ["new-skips"],
        "allow_paths": ["*.toml"],
        "generation": 0,
        "failures": 0,
        "losses": 0,
        "not_before_ms": 0,
        "reason": "",
        "feedback": "",
        "created_ms": 0,
        "updated_ms": 0,
        "deliverable": "change",
        "missing": [],
        "answer": "",
        "branch": f"harness/{item['id']}",
        "new": True,
    }
    again = data(checked, "queue", "add", "other", "--key", "k")
    assert (again["id"], again["new"]) == (item["id"], False)
    said = checked("queue", "add", "other", "--key", "k")[2]
    assert said == f"nothing was changed: the key is that of {item['id']} (ready), 'Työ 日本'\n"
    assert [one["id"] for one in data(checked, "queue", "list")] == [item["id"]]


def test_an_items_life_is_shown_with_its_events(checked):
    code, out, err = checked("queue", "add", "Fix it")
    item = out.strip()
    assert code == 0 and err == f"queued {item} (ready)\n"
    assert checked("queue", "cancel", item)[1:] == (f"{item}\n", f"{item} is cancelled\n")
    assert [one["id"] for one in data(checked, "queue", "list", "--state", "ready")] == []
    assert checked("queue", "retry", item)[2] == f"{item} is ready\n"
    _, out, _ = checked("queue", "show", item)
    assert f"branch      harness/{item}" in out and "state       ready" in out
    assert [line.split()[4] for line in out.splitlines()[-3:]] == ["item.queued", "item.state", "item.state"]
    assert len(data(checked, "queue", "show", item)["events"]) == 3


def test_an_item_waits_for_what_it_depends_on(checked):
    first = data(checked, "queue", "add", "first")["id"]
    second = data(checked, "queue", "add", "second", "--depends-on", first)
    assert second["depends_on"] == [first] and second["state"] == "blocked"


def record(tmp_path):
    """A run in the log, as a worker would leave it: two roles, one failed call, one without a price, one dangling."""
    loaded = load(tmp_path / "a työ", env={})
    with App(loaded.config, loaded.root) as app:
        log = app.audit.recorder("fix", "r1")
        log.event(
            Kind.RUN_STARTED,
            {"generation": 1, "base": "HEAD", "mode": "live", "source": "", "version": "", "config": ""},
        )
        for role, nanousd in (("implementer", 1_500_000_000), ("implementer", 250_000_001), ("reviewer", None)):
            log.event(Kind.MODEL_ASKED, {"role": role})
            log.event(
                Kind.MODEL_ANSWERED,
                {"role": role, "nanousd": nanousd, "usage": {"input": 100, "output": 7}, "seconds": 1.0},
                {"reply": f"the {role}'s \x1b[31manswer"},
            )
        log.event(Kind.MODEL_FAILED, {"role": "reviewer", "nanousd": 0, "seconds": 1.0})
        log.event(Kind.MODEL_ASKED, {"role": "reviewer"})


def test_cost_is_the_sum_of_the_calls(checked, tmp_path):
    record(tmp_path)
    got = data(checked, "audit", "cost")
    rows = {row["role"]: row for row in got["rows"]}
    assert rows["implementer"]["nanousd"] == got["total"]["nanousd"] == 1_750_000_001
    assert (rows["reviewer"]["unpriced"], rows["reviewer"]["failed_calls"]) == (1, 1)
    assert sum(row["input"] for row in got["rows"]) == got["total"]["input"] == 300
    _, out, _ = checked("audit", "cost", "r1")
    assert out.splitlines()[1].split()[-1] == "$1.7501" and "1 unpriced" in out.splitlines()[2]
    assert data(checked, "audit", "ls")[0]["cost"]["nanousd"] == 1_750_000_001


def test_events_are_shown_with_their_bodies_and_cannot_steer_the_terminal(checked, tmp_path):
    record(tmp_path)
    _, out, _ = checked("audit", "show", "r1", "--body")
    assert "        | the implementer's \\x1b[31manswer" in out and "\x1b" not in out
    events = data(checked, "audit", "show", "fix", "--body")
    assert events[2]["bodies"] == {"reply": "the implementer's \x1b[31manswer"}
    assert checked("audit", "show", "fix")[1].count("\n") == 9


def test_a_log_that_was_changed_ends_with_7(checked, tmp_path):
    record(tmp_path)
    assert data(checked, "audit", "verify")["ok"]
    with sqlite3.connect(tmp_path / "a työ" / ".harness" / "harness.db") as base:
        for (trigger,) in base.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            base.execute(f'drop trigger "{trigger}"')
        base.execute("update event set data = replace(data, '250000001', '250000002')")
    code, out, err = checked("audit", "verify")
    assert code == 7 and out.strip() and "problem" in err
    code, out, _ = checked("audit", "verify", "--json")
    assert code == 7 and json.loads(out)["ok"] is False


def test_stats_count_what_the_story_did_to_verdicts(checked, tmp_path):
    said = {"blind": "pass", "told": "fail", "altered": True, "unsupported": 2, "remembered": False, "findings": 1}
    loaded = load(tmp_path / "a työ", env={})
    with App(loaded.config, loaded.root) as app:
        log = app.audit.recorder("", "r1")
        log.event(Kind.REVIEW_JUDGED, {"verdict": "fail", "proofs": {"verified": 1}, **said})
        log.event(Kind.REVIEW_JUDGED, {"verdict": "fail", "proofs": {"verified": 1}, **said, "remembered": True})
        back = {**said, "blind": "fail", "told": "pass", "altered": False, "unsupported": 0}
        log.event(Kind.REVIEW_JUDGED, {"verdict": "fail", "proofs": {"proven": 1}, **back})
        log.event(Kind.REVIEW_JUDGED, {"verdict": "inconclusive", "proofs": {}, **back, "told": "", "blind": ""})
    got = data(checked, "audit", "stats")
    assert (got["reviews"], got["remembered"], got["fail"], got["inconclusive"], got["told_the_story"]) == (
        4,
        1,
        2,
        1,
        2,
    )
    assert (got["verdict_altered_by_it"], got["taken_back_by_it_in_vain"], got["claims_unsupported"]) == (1, 1, 2)
    assert (got["findings_proven"], got["findings_verified"]) == (1, 1)


def test_an_empty_log_and_queue_are_no_error(checked):
    assert checked("queue", "list") == (0, "", "no items\n")
    assert checked("audit", "ls") == (0, "", "no runs\n")
    assert data(checked, "queue", "list") == data(checked, "audit", "ls") == []


def test_a_command_works_from_a_folder_below(checked, tmp_path, monkeypatch):
    below = tmp_path / "a työ" / "x"
    below.mkdir()
    monkeypatch.chdir(below)
    assert checked("queue", "add", "Fix it")[0] == 0
    assert not (below / ".harness").exists()


def test_a_clone_takes_nothing_of_this_machine_until_that_is_allowed(checked, tmp_path, monkeypatch):
    (tmp_path / "a työ" / "harness.toml").write_text(
        '[routes.main]\nmodel = "openai/m"\nbase_url = "https://evil.example/v1"\napi_key_env = "MY_KEY"\n'
    )
    fact = "the key in MY_KEY, for https://evil.example/v1 (routes.main)"
    for words in (["run"], ["queue", "list"], ["survey", "x"], ["audit", "ls"], ["bench", "review"]):
        code, out, err = checked(*words)
        assert (code, out, err.count("\n")) == (2, "", 1) and fact in err and "agent-harness trust" in err
    code, out, _ = checked("doctor")
    assert code == 2 and fact in out
    assert not (tmp_path / "a työ" / ".harness").exists()
    assert checked("config", "show")[0] == checked("guard", "ls")[0] == 0
    code, out, _ = checked("trust")
    assert (code, out) == (0, f"allowed: {fact}\n") and checked("queue", "list")[0] == 0
    assert data(checked, "trust")["allowed"] == [fact]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert checked("queue", "list")[0] == 2
    monkeypatch.setenv("AGENT_HARNESS_TRUST", "1")
    assert checked("queue", "list")[0] == 0
