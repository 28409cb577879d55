"""Which untracked files are left out of a candidate: by the base's own rules, which the change cannot edit.

Git itself judges the names, in a scratch folder that holds nothing but the base's `.gitignore` files. A file that the
base tracks is never asked about.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from agent_harness.git import Git, blobs
from agent_harness.workspace.entries import FILE, PROGRAM, Entry, unsafe

BUILT_IN = (
    *("__pycache__/", "*.py[cod]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/"),
    *(".venv/", "*.egg-info/", ".coverage", ".coverage.*", "node_modules/", ".DS_Store", ".harness-output/"),
)
"""Left out of every candidate unless the base's own rules say otherwise (`!name`). What tools leave behind."""


class IgnoreRules:
    """The base's rules and the built-in ones. The base's come first in rank."""

    def __init__(self, git_dir: Path, base: Mapping[bytes, Entry], scratch: Path) -> None:
        self._git_dir, self._base, self._scratch = git_dir, base, scratch / "rules"
        self._excludes = scratch / "excludes"

    def drop(self, files: list[bytes], folders: list[bytes]) -> set[bytes]:
        """Those of these untracked paths that are ignored."""
        if not files and not folders:
            return set()
        if not self._scratch.exists():
            self._prepare()
        for folder in folders:
            self._folder(folder)
        # The folder stands in the scratch tree, so that rules for folders only apply to it.
        git = Git(self._git_dir, work_tree=self._scratch, index=self._scratch.with_name("no-index"))
        asked = b"".join(b"./%s\0" % path for path in (*files, *folders))  # so that no name is taken for magic
        args = ("-c", f"core.excludesFile={self._excludes}", "check-ignore", "--no-index", "-z", "--stdin")
        done = git.attempt(*args, stdin=asked, env={"GIT_LITERAL_PATHSPECS": "0"})
        if done.code > 1:
            raise done.fault()
        return {path[2:] for path in done.out.split(b"\0")[:-1]}

    def _prepare(self) -> None:
        self._scratch.mkdir()
        self._excludes.write_text("".join(f"{line}\n" for line in BUILT_IN))
        rules = [entry for entry in self._base.values() if _is_rules(entry)]
        git = Git(self._git_dir)
        for entry, chunks in zip(rules, blobs(git, [entry.oid for entry in rules]), strict=True):
            self._folder(entry.path.rpartition(b"/")[0])
            self._inside(entry.path).write_bytes(b"".join(chunks))

    def _folder(self, path: bytes) -> None:
        self._inside(path).mkdir(parents=True, exist_ok=True)

    def _inside(self, path: bytes) -> Path:
        return Path(os.fsdecode(os.fsencode(self._scratch) + b"/" + path))


def _is_rules(entry: Entry) -> bool:
    named = entry.path == b".gitignore" or entry.path.endswith(b"/.gitignore")
    return named and entry.mode in {FILE, PROGRAM} and not unsafe(entry.path)
