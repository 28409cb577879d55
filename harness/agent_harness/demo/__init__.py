"""The embedded demonstration: a small real repository with a real bug, and recorded answers of a model."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent_harness.git import Git
from agent_harness.types import NewItem

HERE = Path(__file__).parent
RECORDING = HERE / "recording.jsonl"
"""The answers. Made by `tests/e2e/record_demo.py`, which drives the real harness with a scripted server."""

SETTINGS = "harness.toml"
PROJECT = HERE / "project"
"""The repository's files, and the configuration that is laid beside them, uncommitted."""

ITEM = NewItem(
    id="lost-cents",
    title="Splitting a bill loses cents",
    brief="split(1000, 3) gives [333, 333, 333]: a cent is lost. Shares must add up to the total and differ by one "
    "cent at most. Leave the tests as they are.",
    key="demo",
)


def make_repository(folder: Path) -> Path:
    """Write the repository into a new folder and commit it; the same commit id every time. Raises GitFault."""
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", SETTINGS))
    Git(None, cwd=folder).run("init", "--quiet", "--initial-branch=main")
    commit(folder, "Split bills", "Demo")
    shutil.copy(PROJECT / SETTINGS, folder)
    return folder


def commit(folder: Path, message: str, name: str) -> str:
    """Commit all that is in a repository's folder; the same files and words have the same id. Raises GitFault."""
    git = Git(folder / ".git", work_tree=folder)
    person = {"NAME": name, "EMAIL": f"{name.lower()}@example.invalid", "DATE": "2026-01-01T00:00:00+0000"}
    env = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in person.items()}
    git.run("add", "--all", "--", ".")
    git.run("commit", "--quiet", "--no-verify", "-m", message, env=env)
    return git.line("rev-parse", "HEAD")
