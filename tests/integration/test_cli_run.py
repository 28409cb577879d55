"""`run`, `review` and `demo` as a person calls them: a scripted provider, a real sandbox."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_harness.types import dollars
from e2e import scripts
from e2e.conftest import KEY, desk, git  # noqa: F401 - `desk` is a fixture

pytestmark = pytest.mark.docker
PROGRAM = Path(sys.executable).with_name("agent-harness")


def cli(desk, *words, code=0):  # noqa: F811
    env = {"PATH": os.environ["PATH"], "HOME": str(desk.folder.parent), "SCRIPTED_KEY": KEY, "TERM": "xterm-256color"}
    done = subprocess.run(
        [PROGRAM, *words],
        cwd=desk.folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    return done.stdout, done.stderr


def test_run_says_what_it_does_and_ends_with_the_receipt(desk):  # noqa: F811
    with desk.serving(coder=scripts.IMPLEMENTER, critic=scripts.REVIEWER):
        desk.settings()
        item = cli(desk, "queue", "add", "Splitting loses cents", "--brief", "Fix it.")[0].strip()
        assert "not committed" not in cli(desk, "run", "--dry-run")[1]
        (desk.folder / "bill" / "__init__.py").write_text("# not committed\n")
        out, err = cli(desk, "run", "--dry-run", "--json")
        assert err.startswith(
            "note: 1 file(s) have changes that are not committed, and are not seen: bill/__init__.py\n"
        )
        git(desk.folder, "checkout", "-q", ".")
        plan = json.loads(out)
        assert plan["worst_nanousd"] == 5_000_000_000 and plan["checks"][0]["passed"] is False and not plan["problems"]
        assert desk.server.requests == [] and json.loads(cli(desk, "audit", "ls", "--json")[0]) == []
        out, err = cli(desk, "run", "--record", "answers.jsonl")
    branch = f"harness/{item}"
    assert out.splitlines()[-1].split() == ["delivered", git(desk.folder, "rev-parse", branch), "on", "branch", branch]
    words = " ".join(out.split())
    assert "implementer submitted, 7 turns" in words and "gate review: pass" in words
    assert "] $ python3 -m pytest -q … exit 1 (" in err and "[implementer 7/" in err
    assert f"next: git log -p -1 {branch}" in err

    cost = json.loads(cli(desk, "audit", "cost", item, "--json")[0])
    assert cost["total"]["nanousd"] == sum(row["nanousd"] for row in cost["rows"]) > 0
    assert f"{dollars(cost['total']['nanousd'])}, " in out.splitlines()[-2]
    assert "holds" in cli(desk, "audit", "verify")[1]
    assert cli(desk, "run", code=5)[1] == (
        'agent-harness: no item is ready. Next: queue one: agent-harness queue add "TITLE" --brief "..."\n'
    )


def test_until_empty_works_on_all_and_ends_with_the_gravest(desk):  # noqa: F811
    cheat = [scripts.bash(scripts.TESTS), scripts.bash("rm tests/test_money.py"), scripts.done()]
    with desk.serving(coder=[*scripts.IMPLEMENTER, *cheat], critic=scripts.REVIEWER):
        desk.settings()
        cli(desk, "queue", "add", "Good", "--id", "good", "--priority", "1")
        cli(desk, "queue", "add", "Bad", "--id", "bad")
        out, _ = cli(desk, "run", "--until-empty", "--json", code=1)
    assert [(one["item"], one["exit"]) for one in json.loads(out)["runs"]] == [("good", 0), ("bad", 1)]


def test_until_empty_does_not_ask_a_provider_that_is_not_there_for_every_item(desk):  # noqa: F811
    desk.settings()  # without a server: nothing listens
    for item in "abc":
        cli(desk, "queue", "add", item, "--id", item)
    out, said = cli(desk, "run", "--until-empty", "--json", code=3)
    assert [one["item"] for one in json.loads(out)["runs"]] == ["a", "b"] and "so the others wait" in said


def test_an_unknown_base_and_a_check_that_cannot_run_ask_no_model(desk):  # noqa: F811
    with desk.serving():
        desk.settings()
        git(desk.folder, "branch", "no/such")
        cli(desk, "queue", "add", "a", "--id", "a", "--base", "no/such", "--priority", "1")
        git(desk.folder, "branch", "-D", "no/such")
        cli(desk, "queue", "add", "b", "--id", "b", "--check", "no-such-tool --test")
        assert "no/such" in cli(desk, "run", "--dry-run", "--item", "a", code=2)[1]
        assert "no-such-tool" in cli(desk, "run", "--dry-run", "--item", "b", code=8)[0]
        out, _ = cli(desk, "run", "--until-empty", code=8)
        assert "no/such" in out and "no-such-tool" in out
        assert desk.server.requests == []


def test_review_judges_a_diff_by_the_bases_configuration(desk):  # noqa: F811
    with desk.serving(critic=scripts.REVIEWER):
        desk.settings()
        git(desk.folder, "add", "-A")
        who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
        git(desk.folder, *who, "commit", "-qm", "configure")
        split = desk.folder / "bill" / "split.py"
        split.write_text(split.read_text().replace(scripts.SPLIT_FIX["old"], scripts.SPLIT_FIX["new"]))
        (desk.folder / "harness.toml").write_text("[broken by the head")
        git(desk.folder, *who, "commit", "-qam", "fix")
        out, err = cli(desk, "review", "--base", "HEAD^", "--json")
    report = json.loads(out)
    assert (report["exit"], report["verdict"]) == (0, "pass"), err


def test_the_demo_delivers(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [PROGRAM, "demo", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (run,) = told["runs"]
    assert git(Path(told["folder"]), "rev-parse", run["branch"]) == run["commit"]
    assert "recorded" in done.stderr and "+    share, left = divmod" in run["diff"]
    shown = (Path(__file__).parents[2] / "README.md").read_text()  # what a recording settles, it shows as it is
    turns = re.findall(r"^\[implementer \S+ \S+", shown, re.MULTILINE)
    assert turns and all(one in done.stderr for one in turns)
    tokens, nanousd = run["receipt"]["totals"]["tokens"], run["receipt"]["totals"]["nanousd"]
    assert f"{tokens['input']} + {tokens['output']} tokens, {dollars(nanousd)}, " in shown
    for command in done.stderr.split("next, try:\n")[1].splitlines()[:2]:  # from any folder, the program on no path
        subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, check=True)
