"""One item the whole way, the model's words scripted over HTTP, everything else real."""

import pytest

from agent_harness.errors import Exit
from agent_harness.types import NANO, ItemState, Limits
from e2e import scripts
from e2e.conftest import KEY, git
from fakes.openai_server import call, say

pytestmark = pytest.mark.docker


def play(desk, coder, critic=scripts.REVIEWER, *, settings="", **item):
    with desk.serving(coder=coder, critic=critic):
        desk.settings(settings)
        with desk.app() as app:
            name = desk.add(app, **item)
            report = desk.run(app)
            assert app.audit.verify() == []
            return app, report, app.queue.get(name)


def test_a_fix_is_delivered(desk):
    before = git(desk.folder, "rev-parse", "HEAD"), git(desk.folder, "status", "--porcelain")
    _app, report, item = play(desk, scripts.IMPLEMENTER)
    assert (report.exit, report.outcome, item.state) == (Exit.OK, "delivered", ItemState.DONE), report.reason
    assert git(desk.folder, "rev-parse", report.branch) == report.commit
    assert (
        git(desk.folder, "rev-parse", "HEAD"),
        git(desk.folder, "status", "--porcelain").replace("?? .harness/\n", ""),
    ) == before
    trailers = git(desk.folder, "log", "-1", "--format=%(trailers:only)", report.branch)
    for name in ("Harness-Item", "Harness-Run", "Harness-Receipt", "Harness-Audit"):
        assert f"{name}: " in trailers
    assert "divmod" in git(desk.folder, "show", report.branch)
    assert [role["role"] for role in report.receipt["roles"]] == ["implementer", "reviewer"]


def test_a_dirty_checkout_is_no_obstacle(desk):
    (desk.folder / "bill" / "split.py").write_text("half written")
    (desk.folder / "notes.txt").write_text("mine")
    _, report, _ = play(desk, scripts.IMPLEMENTER)
    assert report.exit is Exit.OK, report.reason
    assert (desk.folder / "bill" / "split.py").read_text() == "half written"
    assert (desk.folder / "notes.txt").read_text() == "mine"


def test_a_wrong_fix_ends_at_the_checks(desk):
    wrong = [scripts.bash(scripts.TESTS), scripts.edit("bill/split.py", scripts.SPLIT_WRONG), scripts.done()]
    _, report, item = play(desk, wrong)
    assert (report.exit, report.outcome, item.state) == (Exit.FAILED, "gate_failed", ItemState.FAILED)
    assert "gate checks" in report.reason
    assert "newly failing" in report.reason
    assert "test_splits_evenly" in report.reason
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


def test_editing_the_failing_test_ends_at_policy(desk):
    cheat = [
        scripts.bash(scripts.TESTS),
        scripts.bash("sed -i 's/== total/>= 0/' tests/test_split.py; rm tests/test_money.py"),
        scripts.done(),
    ]
    _, report, _ = play(desk, cheat)
    assert report.exit is Exit.FAILED
    assert "gate policy" in report.reason
    assert "tests/test_split.py" in report.reason


def test_never_submitting_is_incomplete_with_the_work_kept(desk):
    endless = [scripts.edit("bill/split.py", scripts.SPLIT_FIX), *(scripts.bash(f"echo {i}") for i in range(20))]
    _, report, item = play(desk, endless, limits=Limits(6, 1_000_000, NANO, 600.0))
    assert (report.exit, report.outcome, item.state) == (Exit.LIMIT, "incomplete", ItemState.EXHAUSTED), report.reason
    assert report.receipt["totals"]["steps"] == len(desk.server.requests) == 6
    assert b"divmod" in report.diff


def test_stopped_work_is_gone_on_with(desk):
    first = [scripts.edit("bill/split.py", scripts.SPLIT_FIX), *(scripts.bash(f"echo {i}") for i in range(9))]
    with desk.serving(coder=first):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app, limits=Limits(9, 1_000_000, NANO, 600.0))
            assert desk.run(app).outcome == "incomplete"
            app.queue.retry(item)
    second = [scripts.bash("git diff HEAD~1 --stat"), scripts.bash(scripts.TESTS), scripts.done()]
    with desk.serving(coder=second, critic=scripts.REVIEWER):
        desk.settings()
        with desk.app() as app:
            report = desk.run(app, item)
            assert app.queue.get(item).generation == 2
        asked = desk.server.requests[0].messages[1]["content"]
    assert "limit_steps" in asked and "git diff HEAD~1" in asked
    assert report.exit is Exit.OK, report.reason
    assert git(desk.folder, "rev-parse", f"{report.branch}^") == git(desk.folder, "rev-parse", "HEAD")


def test_a_reviewer_out_of_budget_leaves_the_work_for_a_person(desk):
    coder = [scripts.edit("bill/split.py", scripts.SPLIT_FIX), scripts.bash(scripts.TESTS), scripts.done()]
    with desk.serving(coder=coder, critic=scripts.REVIEWER):
        desk.settings()
        with desk.app() as app:
            item = desk.add(app, limits=Limits(4, 1_000_000, NANO, 600.0))
            report = desk.run(app, item)
            assert (report.exit, report.outcome) == (Exit.LIMIT, "incomplete"), report.reason
            assert app.queue.get(item).state is ItemState.EXHAUSTED
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


def test_a_reviewers_blocking_finding_stops_delivery(desk):
    finding = {
        "title": "Negative totals are split unevenly",
        "body": "divmod of a negative total rounds down, so refunds give the wrong sign to some of the shares.",
        "severity": "P1",
        "kind": "correctness",
        "evidence": [0, 1],
        "path": "bill/split.py",
        "side": "head",
        "quote": "share, left = divmod(total, people)",
    }
    critic = [scripts.bash("cat bill/split.py"), scripts.verdict("fail", findings=(finding,)), scripts.after_story()]
    _, report, item = play(desk, scripts.IMPLEMENTER, critic)
    assert (report.exit, item.state) == (Exit.FAILED, ItemState.FAILED)
    assert "Negative totals" in item.feedback


def test_a_reviewer_without_a_verdict_is_inconclusive(desk):
    _, report, item = play(desk, scripts.IMPLEMENTER, [say("APPROVED")] * 5)
    assert (report.exit, report.outcome, item.state) == (Exit.INCONCLUSIVE, "inconclusive", ItemState.READY)
    assert git(desk.folder, "branch", "--list", "harness/*") == ""


def test_what_is_paid_again_and_again_for_no_verdict_is_held_for_a_person(desk):
    text = "[queue]\nmax_losses = 1\n"
    with desk.serving(coder=scripts.IMPLEMENTER, critic=[say("APPROVED")] * 5):
        desk.settings(text)
        with desk.app() as app:
            report = desk.run(app, desk.add(app))
            item = app.queue.get(report.item)
            assert item.state is ItemState.HELD and item.reason == report.reason
    assert (report.exit, report.outcome) == (Exit.HELD, "held") and "; that was loss 1 of 1" in report.reason


def test_odd_replies_are_survived(desk):
    two = {
        "content": None,
        "tool_calls": [
            {"name": "bash", "arguments": {"command": "echo one"}},
            {"name": "bash", "arguments": {"command": "echo two"}},
        ],
    }
    marker = "printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\nall done\\n' > /tmp/m; cat /tmp/m"
    coder = [
        two,
        call("bash", '{"command": "echo '),
        call("bash", {"command": "rm -rf /workspace/*"}, finish="length"),
        scripts.bash(marker),
        scripts.edit("bill/split.py", scripts.SPLIT_FIX),
        scripts.bash(scripts.TESTS),
        scripts.done(),
    ]
    _app, report, _ = play(desk, coder)
    assert report.exit is Exit.OK, report.reason
    requests = [seen for seen in desk.server.requests if seen.body["model"] == "coder"]
    assert len(requests) == len(coder)
    last = requests[-1].messages
    asked = [one["id"] for m in last if m["role"] == "assistant" for one in m.get("tool_calls") or ()]
    answered = [m["tool_call_id"] for m in last if m["role"] == "tool"]
    assert asked == answered
    assert report.receipt["roles"][0]["steps"] == len(coder)


def test_submitting_nothing_is_no_change(desk):
    _, report, item = play(desk, [scripts.bash("ls"), *[scripts.done()] * 4])
    assert report.exit is Exit.FAILED
    assert report.outcome in {"no_change", "incomplete"}
    assert item.state is ItemState.FAILED


def test_every_number_on_the_receipt_adds_up(desk):
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings()
        with desk.app() as app:
            name = desk.add(app)
            report = desk.run(app)
            events = app.audit.events(item=name)
    answered = [e for e in events if e.kind == "model.answered"]
    totals = report.receipt["totals"]
    assert totals["steps"] == len(answered) == len(scripts.IMPLEMENTER) + len(scripts.REVIEWER)
    assert totals["nanousd"] == sum(e.data["nanousd"] for e in answered) > 0
    for kind in ("input", "output"):
        assert totals["tokens"][kind] == sum(e.data["usage"][kind] for e in answered)
    sent = list(desk.server.requests)
    assert len(sent) == totals["calls"]
    assert totals["commands"] == len([e for e in events if e.kind == "command.ended" and e.seq < events[-1].seq])
    assert totals["steps"] == sum(role["steps"] for role in report.receipt["roles"])
    assert totals["nanousd"] == sum(role["nanousd"] for role in report.receipt["roles"])


def test_the_key_is_nowhere(desk):
    coder = [scripts.bash("env; cat /proc/1/environ; ls -la /"), *scripts.IMPLEMENTER]
    _, report, _ = play(desk, coder)
    assert report.exit is Exit.OK, report.reason
    for path in desk.folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert all(KEY not in seen.raw.decode() for seen in desk.server.requests)


class Broken:
    """A transport with a bug, whose error holds the key."""

    def send(self, request, timeout_s):
        raise RuntimeError(f"Bearer {KEY}")


def test_a_bug_of_the_harness_holds_the_item_and_tells_no_key(desk, capfd):
    desk.settings()
    with desk.app(transport=lambda _: Broken()) as app:
        item = desk.add(app)
        report = desk.run(app)
        assert (report.exit, app.queue.get(item).state) == (Exit.INCONCLUSIVE, ItemState.HELD), report.reason
    told = "".join(capfd.readouterr())
    assert "the harness itself broke" in told and "RuntimeError" in told
    assert KEY not in told + report.reason
