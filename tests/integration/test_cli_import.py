"""`queue import` and `queue done` on a real project with a real store."""

import io
import json
import subprocess
import sys

import pytest

from agent_harness.cli import main
from agent_harness.plans import MARK

PLAN = f"""{MARK}
# Better sums

## Items

### [x] zero: Done long ago

### [ ] first: Mend the split
Its prose.
#### Background
More prose.
#### Depends on
- zero

### [ ] second: Then the rest
#### Depends on
- first
- elsewhere

Between the items.
## Notes
Lost.
"""


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    (folder / "harness.toml").write_text('[project]\nchecks = ["make test"]\n')
    (folder / "docs" / "plan.md").write_text(PLAN)

    def command(*words, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main.guarded(list(words))
        return code, *capfd.readouterr()

    return command


def states(cli):
    return {one["id"]: (one["state"], one["reason"]) for one in json.loads(cli("queue", "list", "--json")[1])}


def test_a_plan_is_imported_once_with_its_order(cli, monkeypatch, tmp_path):
    code, out, err = cli("queue", "import", "docs/plan.md", "--dry-run")
    assert code == 0 and "would queue 3; 0 known" in err and "docs/plan.md#first" in out and states(cli) == {}
    code, out, err = cli("queue", "import", "docs/plan.md")
    assert code == 0 and "line 21: no part of a plan" in err and "line 22: no part of a plan" in err
    assert states(cli) == {
        "first": ("ready", ""),
        "second": ("blocked", "waits for first (ready), docs/plan.md#elsewhere (not queued)"),
        "zero": ("done", "imported as done"),
    }
    shown = json.loads(cli("queue", "show", "first", "--json")[1])
    assert shown["item"]["brief"] == "Its prose.\n#### Background\nMore prose." and shown["answer"] is None
    assert "Between the items." in json.loads(cli("queue", "show", "second", "--json")[1])["item"]["brief"]

    monkeypatch.chdir("docs")
    code, out, err = cli("queue", "import", "plan.md", "--json", "--done", "first")
    assert [one["new"] for one in json.loads(out)["items"]] == [False] * 3 and len(states(cli)) == 3
    assert "agent-harness queue done first --reason" in err
    assert cli("queue", "done", "first", "--reason", "commit 1234567 did it")[0] == 0
    assert states(cli)["first"] == ("done", "declared done: commit 1234567 did it")
    assert cli("queue", "done", "first", "--reason", "again")[0] == 2

    monkeypatch.chdir("..")
    grown = PLAN.replace("## Notes", "### [x] elsewhere: There too\n## Notes")
    (tmp_path / "project" / "docs" / "plan.md").write_text(grown)
    assert cli("queue", "import", "docs/plan.md")[0] == 0
    assert states(cli)["second"][0] == "ready"


def test_a_plan_takes_no_check_away_and_what_it_allows_is_said(cli, tmp_path):
    bold = "### [ ] bold: Bold\n#### Checks\n- command: `true`\n#### Allow\n- `**`\n"
    (tmp_path / "project" / "docs" / "plan.md").write_text(PLAN.replace("## Notes", f"{bold}## Notes"))
    code, _, err = cli("queue", "import", "docs/plan.md")
    assert code == 0 and "docs/plan.md#bold may change protected paths: **" in err
    checks = json.loads(cli("queue", "show", "bold", "--json")[1])["item"]["checks"]
    assert [one["command"] for one in checks] == ["make test", "true"]


def test_all_or_nothing(cli, tmp_path):
    plan = tmp_path / "project" / "docs" / "plan.md"
    plan.write_text(PLAN + "### x\n## Items\n### [ ] a: A\n#### Depends on\n- b\n### [ ] b: B\n#### Depends on\n- a\n")
    code, _, err = cli("queue", "import", "docs/plan.md")
    assert code == 2 and "docs/plan.md#a -> docs/plan.md#b" in err and states(cli) == {}
    (tmp_path / "project" / "harness.toml").write_text("")
    plan.write_text(PLAN)
    code, _, err = cli("queue", "import", "docs/plan.md")
    assert code == 2 and "'Mend the split' has no checks" in err and states(cli) == {}
    plan.write_text(PLAN.replace("#### Depends on", "#### Deliverable\n- answer\n#### Depends on"))
    assert cli("queue", "import", "docs/plan.md")[0] == 0
    assert cli("queue", "add", "Why is it slow?", "--answer")[0] == 0


def test_a_file_of_the_repository_above_the_project_is_known_by_its_place_there(cli, tmp_path, monkeypatch):
    (tmp_path / "project" / "part").mkdir()
    (tmp_path / "project" / "harness.toml").rename(tmp_path / "project" / "part" / "harness.toml")
    monkeypatch.chdir("part")
    text = (tmp_path / "project" / "part" / "harness.toml").read_text()
    (tmp_path / "project" / "part" / "harness.toml").write_text(text.replace("checks", 'source = ".."\nchecks'))
    assert cli("trust")[0] == 0
    assert cli("queue", "import", str(tmp_path / "project" / "docs" / "plan.md"))[0] == 0
    assert "3 known already" in cli("queue", "import", "../docs/plan.md")[2]
    assert json.loads(cli("queue", "show", "first", "--json")[1])["item"]["key"] == "../docs/plan.md#first"


def test_stdin_is_read_when_asked_for(cli):
    code, _, err = cli("queue", "import", "-", stdin=b"- [ ] one\n- [x] two\n")
    assert code == 0 and "queued 2" in err and "known by stdin#ID" in err and states(cli)["one"][0] == "ready"
    assert cli("queue", "import", "-", stdin=b"[]")[0] == 5
    assert cli("queue", "import", "-", stdin=b"\xff\xfe")[0] == 2
    assert cli("queue", "import", "-", stdin=b"- [ ] x\n" + b"y" * (17 << 20))[0] == 2
    code, _, err = cli("queue", "import", "-", stdin=b"- [ ] x\n" + b"y\n" * (5 << 20))
    assert code == 2 and "lines" in err
    code, _, err = cli("queue", "import", "-", stdin=b"- [ ] x\n" + b"y" * (10 << 20))
    assert code == 2 and "has a brief of" in err
    assert cli("queue", "import", "nowhere.md")[0] == 2
