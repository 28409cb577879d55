"""Surveys, assessments and answers: scripted models, everything else real. What is made up is never an answer."""

import json
import os
import signal

import pytest

from agent_harness import asking
from agent_harness.cli import main
from agent_harness.errors import Exit
from agent_harness.plans import read
from agent_harness.types import Deliverable, ItemState
from e2e.conftest import git
from e2e.scripts import bash
from e2e.test_killed_worker import containers, start, wait_for
from fakes.openai_server import call

pytestmark = pytest.mark.docker

LOOK = [
    bash("touch x 2>&1; git log --format=%h; git status --porcelain; cat bill/split.py"),
    bash("rg -n decimal . || grep -rn decimal ."),
]
QUOTE = {"says": "The share is rounded here.", "path": "bill/split.py", "quote": "    share = round(total / people)"}
ABSENT = {"says": "No decimals are used yet.", "event": 2, "searched": "decimal"}
TEST = {"says": "A test holds it.", "path": "tests/test_split.py", "test": "test_splits_evenly"}


def submit(**fields):
    return call("submit", fields)


def item(name="mend-split", **fields):
    return {
        "id": name,
        "title": "Spread the remainder over shares",
        "brief": "split in bill/split.py rounds, so cents are lost. Spread the remainder over the first shares.",
        "acceptance": ["the shares add up to the total"],
        "checks": [{"command": "python3 -m pytest -q tests/test_split.py", "kind": "tests"}],
        "depends_on": [],
        "risk": "low",
        "risk_why": "callers may expect equal shares",
        "paths": [{"path": "bill/split.py"}, {"path": "tests/test_more.py", "new": True}],
        "evidence": [QUOTE],
        **fields,
    }


def plan(*items, **fields):
    said = {
        "goal": "No bill loses a cent",
        "context": "A small package.\n## Items\nis what this heading would be.",
        "assumptions": ["totals are whole cents"],
        "evidence": [ABSENT],
        "items": list(items) or [item(), item("second-step", depends_on=["mend-split"], checks=[])],
        "questions": ["Who gets the cent?"],
    }
    return submit(**(said | fields))


class Line:
    """The command line in the desk's folder."""

    def __init__(self, desk, monkeypatch, capfd):
        self.desk, self._capfd = desk, capfd
        monkeypatch.chdir(desk.folder)

    def __call__(self, script, *words, checks='["python3 -m pytest -q"]'):
        with self.desk.serving(coder=script):
            self.desk.settings(checks=checks)
            text = (self.desk.folder / "harness.toml").read_text()
            roles = "".join(f'[roles.{one}]\nroutes = ["coder"]\n' for one in ("surveyor", "assessor", "answerer"))
            (self.desk.folder / "harness.toml").write_text(text + roles)
            self._capfd.readouterr()
            code = main.guarded(list(words))
            return code, *self._capfd.readouterr()


@pytest.fixture
def line(desk, monkeypatch, capfd):
    return Line(desk, monkeypatch, capfd)


def test_a_survey_becomes_a_plan_and_the_plan_items(line, desk):
    code, out, err = line([*LOOK, plan()], "survey", "No bill may lose a cent", "--into", "plan.md")
    assert (code, out) == (0, "plan.md\n"), err
    assert "surveyor on" in err and "Read-only file system" not in out
    text = (desk.folder / "plan.md").read_text()
    found, skipped = read(text)
    assert skipped == [] and [one.id for one in found.items] == ["mend-split", "second-step"]
    assert found.context.endswith("is what this heading would be.")
    assert found.items[0].evidence == ("The share is rounded here. (bill/split.py:8 'share = round(total / people)')",)
    assert "'decimal' stands nowhere" in found.evidence[0]
    assert line([], "survey", "again", "--into", "nowhere/plan.md")[0] == 2
    code, _, err = line([], "survey", "again", "--into", "plan.md")
    assert code == 2 and "is there already" in err and (desk.folder / "plan.md").read_text() == text
    assert not list(desk.folder.glob(".plan-*"))

    assert line([], "queue", "import", "plan.md")[0] == 0
    with desk.app() as app:
        one, two = app.queue.get("mend-split"), app.queue.get("second-step")
        assert app.audit.verify() == []
    assert (one.state, two.state, two.depends_on) == (ItemState.READY, ItemState.BLOCKED, ("mend-split",))
    assert "the shares add up" in one.brief and "bill/split.py:8" in one.brief and one.allow_paths == ()
    commands = [check.command for check in one.checks]
    assert commands == ["python3 -m pytest -q", "python3 -m pytest -q tests/test_split.py"]  # the project's come first


LIES = {
    "there is no file bill/money2.py": {"evidence": [{**QUOTE, "path": "bill/money2.py"}]},
    "does not stand in it": {"evidence": [{**QUOTE, "quote": "share = floor(total)"}]},
    "is no commit in the history": {"evidence": [{"says": "It was done here.", "commit": "deadbeef"}]},
    "there is no event 9": {"evidence": [{"says": "It printed that.", "event": 9, "text": "anything"}]},
    "event 1 does not show": {"evidence": [{"says": "It printed that.", "event": 1, "text": "never printed"}]},
    "needs an event that searched": {"evidence": [{**ABSENT, "searched": "round"}]},
    "cite exactly one of": {"evidence": [{**QUOTE, "commit": "deadbeef"}]},
    "nowhere/x.py is not there": {"paths": [{"path": "nowhere/x.py"}]},
    "is there already; leave": {"paths": [{"path": "bill", "new": True}]},
    "must be relative": {"paths": [{"path": "../x", "new": True}]},
    "is not one line that a shell": {"checks": [{"command": "pytest 'oops", "kind": "tests"}]},
    "which is no item": {"depends_on": ["nobody"]},
}


@pytest.mark.parametrize("said", LIES, ids=lambda said: said[:24])
def test_a_survey_that_makes_things_up_ends_in_a_report_by_code(line, desk, said):
    code, out, err = line([*LOOK, *[plan(item(**LIES[said]))] * 3], "survey", "Do it", "--into", "plan.md", "--json")
    report = json.loads(out)
    assert (code, report["by"], report["report"]["result"]) == (3, "code", None), err
    assert len(report["report"]["refused"]) == 3 and said in report["report"]["refused"][0]
    assert len(report["report"]["commands"]) == 2 and not (desk.folder / "plan.md").exists()


def test_a_lie_goes_back_and_the_truth_is_taken(line):
    cycle = plan(item("a-one", depends_on=["b-two"]), item("b-two", depends_on=["a-one"]), item("b-two"))
    code, out, err = line([*LOOK, cycle, plan()], "survey", "Do it")
    assert code == 0 and out.startswith("<!-- agent-harness plan 1 -->"), err
    assert "the id b-two is used 2 times" in err


def test_a_survey_at_its_limit_is_no_plan(line):
    code, out, err = line([*LOOK, plan()], "survey", "Do it", "--json", "--set", "limits.steps=2")
    report = json.loads(out)["report"]
    assert (code, report["outcome"], report["result"]) == (6, "incomplete", None), err
    assert report["receipt"]["totals"]["steps"] == 2


def test_a_recorded_survey_is_replayed(line, tmp_path):
    record = str(tmp_path / "survey.jsonl")
    first = json.loads(line([*LOOK, plan()], "survey", "Do it", "--json", "--record", record)[1])
    code, out, err = line([], "survey", "Do it", "--json", "--replay", record)
    again = json.loads(out)
    assert code == 0 and again["plan"]["items"] == first["plan"]["items"], err
    assert again["survey"]["receipt"]["mode"] == "replay"


def test_the_path_of_a_cycle_is_named(line):
    cycle = plan(item("a-one", depends_on=["b-two"]), item("b-two", depends_on=["a-one"]))
    code, out, _ = line([*LOOK, cycle, cycle, cycle], "survey", "Do it")
    assert code == 3 and ("a-one -> b-two -> a-one" in out or "b-two -> a-one -> b-two" in out)
    assert "made by code, not by a model" in out


CHECKLIST = "# Work\n- [ ] Mend the split\n- [x] Use decimals\n- [ ] Test it\n- [ ] Rewrite in C\n"


def judged(name, state, *evidence, **fields):
    return {"id": name, "state": state, "why": "I looked at the code.", "evidence": list(evidence), **fields}


def assessment(head, **fields):
    items = [
        judged("mend-split", "partly", QUOTE, missing="the remainder") | fields,
        judged("use-decimals", "not_done", ABSENT, missing="all of it"),
        judged("test-it", "done", TEST, {"says": "It came with this.", "commit": head}),
        judged("rewrite-in-c", "unknown"),
    ]
    items[0]["id"] = fields.get("id", "mend-the-split")
    return submit(summary="Some of it is done, most is not.", items=items)


def test_an_assessment_proposes_and_decides_nothing(line, desk):
    (desk.folder / "to do.md").write_text(CHECKLIST)
    head = git(desk.folder, "rev-parse", "--short", "HEAD")
    script = [*LOOK, assessment(head)]
    code, out, err = line(script, "assess", "to do.md")
    assert code == 0, err
    assert "use-decimals: not done (the plan says it is done)" in out and "missing: the remainder" in out
    assert f"commit {git(desk.folder, 'rev-parse', 'HEAD')[:12]}" in out
    assert "agent-harness queue import 'to do.md' --done test-it" in out
    with desk.app() as app:
        assert app.queue.items() == []
    assert line([], "queue", "import", "to do.md")[0] == 0
    code, out, _ = line(script, "assess", "to do.md", "--json")
    (confirm,) = json.loads(out)["confirm"]
    assert confirm.startswith("agent-harness queue done test-it --reason 'assessed in r")
    with desk.app() as app:
        assert app.queue.get("test-it").state is ItemState.READY
    assert line([], "queue", "done", "test-it", "--reason", "seen")[0] == 0
    assert json.loads(line(script, "assess", "to do.md", "--json")[1])["confirm"] == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"evidence": [{**TEST, "test": "test_made_up"}]}, "there is no test 'test_made_up'"),
        ({"evidence": [{"says": "Done here.", "commit": "0123456789"}]}, "is no commit in the history"),
        ({"evidence": [ABSENT]}, "partly needs a path with quote"),
        ({"id": "something-else"}, "item something-else is not in the plan"),
        ({"missing": ""}, "say in `missing`"),
    ],
)
def test_an_assessment_that_makes_things_up_is_none(line, desk, fields, said):
    (desk.folder / "todo.md").write_text(CHECKLIST)
    lie = assessment(git(desk.folder, "rev-parse", "HEAD"), **fields)
    code, out, _ = line([*LOOK, lie, lie, lie], "assess", "todo.md", "--json")
    report = json.loads(out)
    assert (code, report["by"]) == (3, "code") and said in report["report"]["refused"][0]


def test_commits_of_other_branches_are_no_history(line, desk):
    (desk.folder / "todo.md").write_text(CHECKLIST)
    git(desk.folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", "later")
    later = git(desk.folder, "rev-parse", "HEAD")
    with desk.app() as app:
        app.repository.fetch(app.source, "HEAD")
    lie = assessment(later)
    code, out, _ = line([*LOOK, lie, lie, lie], "assess", "todo.md", "--base", "HEAD~1", "--json")
    assert code == 3 and f"{later} is no commit in the history" in json.loads(out)["report"]["refused"][0]


ANSWER = submit(outcome="answered", answer="It rounds, so that up to half a cent is lost for each.", evidence=[QUOTE])


def test_an_item_ends_in_an_answer_where_nothing_is_checked(line, desk):
    code, out, err = line([], "queue", "add", "Why are cents lost?", "--answer", checks="[]")
    name = out.strip()
    assert code == 0, err
    assert "would be  answered" in line([], "run", "--dry-run", checks="[]")[1]
    code, out, err = line([*LOOK, ANSWER], "run", checks="[]")
    assert code == 0 and "outcome     answered" in out and f"queue show {name}" in out, err
    code, out, _ = line([], "queue", "show", name, checks="[]")
    assert "It rounds, so that" in out and "bill/split.py:8" in out and "branch" not in out.split("brief")[0]
    with desk.app() as app:
        found = app.queue.get(name)
        assert found.state is ItemState.DONE and json.loads(app.audit.body(found.answer))["outcome"] == "answered"
        (issued,) = app.audit.events(item=name, kinds=["receipt.issued"])
        assert json.loads(app.audit.body(issued.data["receipt"]))["answer"] == found.answer
        assert app.audit.verify() == []
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


@pytest.mark.parametrize(
    ("last", "exit", "state"),
    [
        ([submit(outcome="answered", answer="It rounds, everybody knows.", evidence=[])] * 3, 3, ItemState.FAILED),
        ([submit(outcome="answered", answer="It rounds, as it says.", evidence=[{**QUOTE, "quote": "no such"}])] * 3, 3, ItemState.FAILED),
        ([submit(outcome="impossible", answer="Only the bank knows that, and it is not here.", evidence=[])], 8, ItemState.HELD),
        ([{"status": 401, "body": {"error": {"message": "no", "code": "invalid_api_key"}}}], 4, ItemState.READY),
    ],
    ids=["uncited", "made-up", "impossible", "no-key"],
)  # fmt: skip
def test_what_is_no_answer_ends_as_a_survey_without_one_does(line, desk, last, exit, state):
    name = line([], "queue", "add", "Why are cents lost?", "--answer")[1].strip()
    code, _, err = line([*LOOK, *last], "run")
    with desk.app() as app:
        found = app.queue.get(name)
    assert (code, found.state, found.answer) == (exit, state, ""), err


def test_a_killed_answerer_is_asked_again_and_a_given_answer_is_not(desk):
    with desk.serving(coder=[LOOK[0], {"hang": True}]):
        desk.settings('[roles.answerer]\nroutes = ["coder"]\n')
        with desk.app() as app:
            name = desk.add(app, deliverable=Deliverable.ANSWER)
        process = start(desk, "run", "--item", name)
        wait_for(lambda: len(desk.server.requests) >= 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    with desk.serving(coder=[*LOOK, ANSWER]):
        desk.settings('[roles.answerer]\nroutes = ["coder"]\n')
        with desk.app() as app:
            report = desk.run(app, name)
            found = app.queue.get(name)
            assert (report.exit, report.outcome, found.losses) == (Exit.OK, "answered", 1), report.reason
            other = desk.add(app, title="Again", deliverable=Deliverable.ANSWER)
            app.audit.append("answer.given", {"base": "x"}, item=other, bodies={"answer": app.audit.body(found.answer)})
            asked = len(desk.server.requests)
            assert desk.run(app, other).outcome == "answered" and len(desk.server.requests) == asked
            assert app.queue.get(other).answer == found.answer
    assert containers(report.run) == []


def test_an_interrupted_survey_says_so_and_leaves_nothing(desk):
    with desk.serving(coder=[LOOK[0], {"hang": True}]):
        desk.settings('[roles.surveyor]\nroutes = ["coder"]\n')
        process = start(desk, "survey", "Do it")
        wait_for(lambda: len(desk.server.requests) >= 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    with desk.app() as app:
        (ended,) = app.audit.events(kinds=["run.ended"])
    assert ended.data["outcome"] == "interrupted" and containers(ended.run) == []


def test_a_cut_history_is_said(desk, tmp_path):
    git(desk.folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", "later")
    with desk.app() as app:
        base = app.repository.fetch(app.source, "HEAD")
        assert asking._history(app.repository, base) == "all 2 commits"
    git(tmp_path, "clone", "-q", "--depth", "1", desk.folder.as_uri(), "shallow")
    (tmp_path / "shallow" / "harness.toml").write_text("")
    desk.folder = tmp_path / "shallow"
    with desk.app() as app:
        base = app.repository.fetch(app.source, "HEAD")
        assert "newest 1 commits" in asking._history(app.repository, base)
