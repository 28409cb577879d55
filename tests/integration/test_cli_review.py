"""`review` up to the first question to a model: what it looks at, where its results and its state go."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agent_harness.cli import main

FACTS = {
    "AUTHOR_NAME": "a",
    "AUTHOR_EMAIL": "a@example.invalid",
    "COMMITTER_NAME": "a",
    "COMMITTER_EMAIL": "a@example.invalid",
}


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        **{f"GIT_{name}": value for name, value in FACTS.items()},
    }
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, env=env, capture_output=True, input=stdin)
    return done.stdout.decode().strip()


@pytest.fixture
def repo(tmp_path, monkeypatch) -> Path:
    """Four commits on main, and a branch that left at the second."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(1, 5):
        (folder / "a.py").write_text(f"x = {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"change {number}")
    git(folder, "checkout", "-qb", "feature", "HEAD~2")
    (folder / "b.py").write_text("y = 1\ny = 2\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "feature")
    git(folder, "checkout", "-q", "main")
    monkeypatch.chdir(folder)
    for name in list(os.environ):
        if name.startswith("AGENT_HARNESS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("SCRIPTED_KEY", "k-0123456789")
    route = {"MODEL": "openai/m", "API_KEY_ENV": "SCRIPTED_KEY", "PRICE__INPUT": "1.00", "PRICE__OUTPUT": "2.00"}
    for name, value in route.items():
        monkeypatch.setenv(f"AGENT_HARNESS_ROUTES__MAIN__{name}", value)
    return folder


@pytest.fixture
def run(capfd):
    def called(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.guarded(["review", *words])
        return code, *capfd.readouterr()

    return called


def plan(run, *words: str) -> dict:
    code, out, err = run("--dry-run", "--json", *words)
    assert code == 0, err
    return json.loads(out)


pytestmark = pytest.mark.docker  # a plan makes no sandbox, but says whether one could be made


def test_a_plan_says_what_would_be_looked_at_and_what_it_could_cost(repo, run):
    told = plan(run)
    assert (told["files"], told["hunks"], told["shown"], told["passes"]) == (1, 1, 1, 1)
    assert told["head"] == git(repo, "rev-parse", "HEAD") and told["base"] == git(repo, "rev-parse", "HEAD^")
    assert plan(run, "--passes", "3")["worst_nanousd"] == 3 * told["worst_nanousd"] > 0
    assert plan(run, "--set", "limits.usd=0.25")["worst_nanousd"] == 250_000_000
    code, out, _ = run("--dry-run")
    assert code == 0 and "worst     $1.5000" in out and "1 of 1 hunks" in out
    assert git(repo, "status", "--porcelain") == ""
    (repo / "a.py").write_text("x = 9\n")
    assert "changes that are not committed, and are not seen: a.py\n" in run("--dry-run")[2]
    assert "not committed" not in run("--dry-run", "--head", "main")[2]


def test_a_large_diff_is_shown_in_part_and_the_plan_says_so(repo, run):
    for number in range(40):
        (repo / f"big{number}.py").write_text("".join(f"z{line} = {line}\n" for line in range(300)))
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "big")
    told = plan(run)
    assert told["hunks"] == 40 and 0 < told["shown"] < 40


def test_the_change_is_what_happened_since_it_left_the_base(repo, run):
    told = plan(run, "--base", "main", "--head", "feature")
    assert told["base"] == git(repo, "rev-parse", "main~2") and told["files"] == 1


def test_a_head_that_takes_back_what_another_common_commit_brought_is_no_small_change(repo, run):
    """main merged two lines of work; head merges them too, with the tree of one of them. Measured from that one,
    nothing of the other that it takes back would be seen, and a merge would take it back in main."""
    git(repo, "branch", "left")
    git(repo, "merge", "-q", "-m", "both", "feature")
    tree = git(repo, "rev-parse", "left^{tree}")
    head = git(repo, "commit-tree", tree, "-p", "left", "-p", "feature", "-m", "evil")
    code, _, err = run("--dry-run", "--base", "main", "--head", head)
    assert code == 2 and "meet in 2 commits" in err and "merge main" in err


def test_a_patch_is_applied_in_the_harnesss_own_repository(repo, run, tmp_path):
    patch = tmp_path / "x.patch"
    patch.write_text(git(repo, "diff", "main", "feature", "--binary") + "\n")
    told = plan(run, "--base", "main", "--patch", str(patch))
    assert told["base"] == git(repo, "rev-parse", "main") and told["files"] == 2
    assert git(repo, "status", "--porcelain") == "" and (repo / "a.py").read_text() == "x = 4\n"
    mail = tmp_path / "mail.patch"
    mail.write_text(git(repo, "format-patch", "--stdout", "main~2..feature") + "\n")
    assert plan(run, "--base", "main", "--patch", str(mail))["files"] == 1
    assert git(repo / ".harness/repository.git", "cat-file", "-t", told["head"]) == "commit"
    assert git(repo, "for-each-ref").count("refs/") == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 9\n+x = 5\n", "patch does not apply"),
        ("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -0,0 +1 @@\n+x = 5\n", "a.py"),
        ("diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n", "x"),
        ("diff --git a/.git/config b/.git/config\nnew file mode 100644\n--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n", ".git/config"),
        ("no patch at all\n", "No valid patches"),
        ("", "No valid patches"),
    ],
    ids=["context", "unplaced", "outside", "git", "prose", "empty"],
)  # fmt: skip
def test_a_patch_that_does_not_apply_is_refused_in_one_line(repo, run, tmp_path, text, why):
    patch = tmp_path / "x.patch"
    patch.write_text(text)
    code, out, err = run("--dry-run", "--base", "main", "--patch", str(patch))
    last = err.splitlines()[-1]
    assert (code, out) == (2, "") and "the patch does not apply to" in last and why in last and "--base REF" in last


def test_a_shallow_clone_says_what_it_needs_and_then_has_it(repo, run, tmp_path, monkeypatch):
    for name, words in (("one", ["--depth=1"]), ("all", ["--depth=1", "--no-single-branch"])):
        git(tmp_path, "clone", "-q", *words, repo.as_uri(), name)
    monkeypatch.chdir(tmp_path / "one")
    code, _, err = run("--dry-run")
    assert code == 2 and "--base HEAD^ is not a commit here" in err and "git fetch --unshallow" in err
    monkeypatch.chdir(tmp_path / "all")
    code, _, err = run("--dry-run", "--base", "origin/main", "--head", "origin/feature")
    assert code == 2 and "shallow" in err and "fetch-depth: 0" in err and "GIT_DEPTH: 0" in err
    git(tmp_path / "all", "fetch", "-q", "--unshallow")
    assert plan(run, "--base", "origin/main", "--head", "origin/feature")["base"] == git(repo, "rev-parse", "main~2")


def test_a_bare_repository_and_a_detached_head_will_do(repo, run, tmp_path, monkeypatch):
    git(repo, "checkout", "-q", "--detach", "feature")
    assert plan(run)["files"] == 1
    (repo / "harness.toml").write_text("[limits]\nusd = 0.5\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "configure")
    git(repo, "branch", "-f", "main")
    (repo / "harness.toml").write_text("[limits]\nusd = 0.9\n")
    git(repo, "commit", "-qam", "the change wants more")
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    monkeypatch.chdir(tmp_path / "bare.git")
    before = sorted(os.listdir())
    told = plan(run, "--base", "main", "--head", git(repo, "rev-parse", "HEAD"))
    assert told["worst_nanousd"] == 500_000_000  # the base's word, not the change's
    assert sorted(os.listdir()) == before


def test_a_state_folder_that_the_change_brings_along_is_not_used(repo, run):
    """It could hold a verdict."""
    (repo / ".harness").mkdir()
    (repo / ".harness/harness.db").write_text("a forged log")
    git(repo, "add", "-f", ".harness/harness.db")
    git(repo, "commit", "-qm", "trust me")
    code, _, err = run("--dry-run")
    assert code == 0 and ".harness is part of the repository itself" in err
    assert (repo / ".harness/harness.db").read_text() == "a forged log"
    git(repo, "rm", "-q", "--cached", ".harness/harness.db")
    (repo / ".harness/harness.db").unlink()
    assert "part of the repository" in run("--dry-run")[2]  # HEAD still brings it
    (repo / ".harness").rmdir()
    (repo / ".harness").symlink_to("/tmp")
    git(repo, "add", "-f", ".harness")
    git(repo, "commit", "-qm", "a link")
    assert "part of the repository" in run("--dry-run")[2]


def test_a_link_on_the_way_to_the_state_and_a_database_are_not_the_changes_either(repo, run):
    (repo / "harness.toml").write_text('[state]\ndir = "build/state"\n')
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "where the state is")
    (repo / "evil/state").mkdir(parents=True)
    (repo / "evil/state/harness.db").write_text("a forged log")
    (repo / "build").symlink_to("evil")
    git(repo, "add", "-f", ".")
    git(repo, "commit", "-qm", "trust me")
    code, _, err = run("--dry-run")
    assert code == 0 and "build/state is part of the repository itself" in err
    assert (repo / "evil/state/harness.db").read_text() == "a forged log"
    code, _, err = run("--dry-run", "--set", "state.dir=.harness", "--db", "sqlite:///evil/state/harness.db")
    assert code == 2 and "part of the repository itself" in err and "--db" in err


def test_nothing_that_differs_is_nothing_to_do(repo, run):
    code, _, err = run("--base", "HEAD", "--head", "HEAD")
    assert code == 5 and "nothing differs" in err


# --- where results go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "sarfi"], "--format sarfi is unknown. Next: use one of github, gitlab, json,"),
        (["--format", "json", "--format", "markdown"], "only one format can go to stdout"),
        (["--json", "--format", "sarif"], "only one format can go to stdout"),
        (["--format", "json=no/such/folder/x"], "cannot be written"),
        (["--format", "json=."], "cannot be written"),
        (["--passes", "0"], "--passes"),
        (["--patch", "no/such"], "'no/such' does not exist"),
        (["--claims", "no/such"], "cannot read the claims from no/such"),
    ],
    ids=" ".join,
)
def test_wrong_words_are_told_before_anything_is_paid(repo, run, words, says):
    code, _, err = run(*words)
    assert code == 2 and says in err.splitlines()[-1] and "Traceback" not in err


def test_a_review_that_ends_before_a_report_is_inconclusive_in_every_file(repo, run, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRIPTED_KEY", "")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    names = ("json", "sarif", "markdown", "gitlab", "junit", "github", "text")
    for name in names:  # of an earlier run, which passed
        (tmp_path / name).write_text("verdict pass")
    target = tmp_path / "elsewhere"
    target.write_text("not ours")
    (tmp_path / "json").unlink()
    (tmp_path / "json").symlink_to(target)
    code, out, err = run(*(word for name in names for word in ("--format", f"{name}={tmp_path / name}")))
    assert code == 4 and out == "" and "SCRIPTED_KEY" in err
    for name in names:
        text = (tmp_path / name).read_text()
        assert "inconclusive" in text and "SCRIPTED_KEY is not set" in text and "verdict pass" not in text
    told = json.loads((tmp_path / "json").read_text())
    assert (told["verdict"], told["exit"], told["overall_correctness"]) == ("inconclusive", 4, "review is inconclusive")
    assert ET.fromstring((tmp_path / "junit").read_text()).get("errors") == "1"
    assert "\ninconclusive\n" in (tmp_path / "outputs").read_text()
    assert "inconclusive (exit 4)" in (tmp_path / "summary").read_text()
    assert target.read_text() == "not ours" and not (tmp_path / "json").is_symlink()
