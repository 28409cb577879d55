"""The embedded demonstration: a small real repository with a real bug, and recorded answers of a model."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from agent_harness.errors import GitFault
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
    person = {"NAME": "Demo", "EMAIL": "demo@example.invalid", "DATE": "2026-01-01T00:00:00+0000"}
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in person.items()},
    }
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Split bills"]):
        done = subprocess.run(["git", "-C", str(folder), *words], env=env, capture_output=True, check=False, timeout=60)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace")
            raise GitFault("the demonstration's repository could not be made", why=why)
    shutil.copy(PROJECT / SETTINGS, folder)
    return folder
