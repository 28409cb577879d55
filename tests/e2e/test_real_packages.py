"""Real input: released packages with one of their own bugs, worked on over the wire by a scripted model."""

from __future__ import annotations

import subprocess

import pytest

from agent_harness.errors import Exit
from agent_harness.types import NANO, ItemState, Limits
from e2e import packages, scripts
from e2e.conftest import Desk, git
from e2e.test_packages import failing
from fakes.openai_server import call

pytestmark = [pytest.mark.docker, pytest.mark.index]


@pytest.fixture(params=packages.PACKAGES, ids=lambda package: package.name)
def case(request, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRIPTED_KEY", "sk-scripted-0123456789")
    return packages.make_case(request.param, tmp_path)


def coder(case: packages.Case, changes: tuple[packages.Edit, ...]) -> list[dict]:
    """Explores, runs the failing test, edits, runs the tests, submits."""
    file = case.package.file
    by_path: dict[str, list[dict[str, str]]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append({"old": change.old, "new": change.new})
    return [
        scripts.bash("git status --short; git log --oneline | head; git ls-files | head -40"),
        scripts.bash(f"python3 -m pytest -q '{case.package.failing}' 2>&1 | tail -20"),
        scripts.bash(f"wc -l {file}; rg -n 'def ' {file} | head -60"),
        *(call("edit", {"path": path, "edits": edits}) for path, edits in by_path.items()),
        scripts.bash(case.package.check),
        scripts.done(f"{case.package.brief} The change does just that, and the tests were run after it."),
    ]


def critic(case: packages.Case) -> list[dict]:
    """Reads the changed file, runs the once failing test on base and candidate, and passes the change."""
    run = f"python3 -m pytest -q -p no:cacheprovider '{case.package.failing}' 2>&1 | tail -3"
    return [
        scripts.bash(f"diff -u /base/{case.package.file} /workspace/{case.package.file}"),
        scripts.bash(f"cp -r /base /scratch/base && cd /scratch/base && {run}"),
        scripts.bash(f"cp -r /workspace /scratch/head && cd /scratch/head && {run}"),
        scripts.verdict(),
        scripts.after_story(),
    ]


def play(case: packages.Case, script: list[dict], **fields):
    desk = Desk(case.path)
    with desk.serving(coder=script, critic=critic(case)):
        desk.settings(checks=f"['''{case.package.check}''']")
        with desk.app() as app:
            item = desk.add(app, title=case.package.brief, brief=case.package.brief, **fields)
            report = desk.run(app)
            assert app.audit.verify() == []
            return report, app.queue.get(item)


def test_the_fix_is_delivered(case, tmp_path):
    report, item = play(case, coder(case, case.fix))
    assert (report.exit, item.state) == (Exit.OK, ItemState.DONE), report.reason
    assert git(case.path, "rev-parse", f"{report.branch}^") == case.commit
    by_hand = tmp_path / "by-hand"
    subprocess.run(["git", "clone", "-q", "-b", report.branch, str(case.path), str(by_hand)], check=True)
    assert failing([by_hand], case.package.check) == [set()]


def test_a_wrong_fix_ends_at_the_checks(case):
    report, item = play(case, coder(case, case.wrong_fix))
    assert (report.exit, item.state) == (Exit.FAILED, ItemState.FAILED), report.reason
    assert report.reason.startswith("gate checks:")
    assert "failing: tests" in report.reason


def test_editing_the_failing_test_ends_at_policy(case):
    report, _ = play(case, coder(case, (case.weaken,)))
    assert report.exit is Exit.FAILED
    assert report.reason.startswith("gate policy:")
    assert case.weaken.path in report.reason


def test_never_submitting_ends_incomplete_with_the_work_kept(case):
    script = [*coder(case, case.fix)[:-1], *(scripts.bash(f"sed -n {n}p {case.package.file}") for n in range(1, 20))]
    report, item = play(case, script, limits=Limits(9, 2_000_000, NANO, 900.0))
    assert (report.exit, report.outcome, item.state) == (Exit.LIMIT, "incomplete", ItemState.EXHAUSTED), report.reason
    assert case.package.file.encode() in report.diff
    kept = git(case.path / ".harness" / "repository.git", "rev-parse", f"refs/harness/work/{item.id}/1^{{tree}}")
    assert kept == report.receipt["tree"]
