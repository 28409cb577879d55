"""The real packages are what the end-to-end tests take them for: one bug, a fix that is the whole difference."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import docker
import pytest

from agent_harness_sandbox.image import OWN_IMAGE
from e2e import packages

pytestmark = pytest.mark.index


@pytest.fixture(params=packages.PACKAGES, ids=lambda package: package.name)
def case(request, tmp_path):
    return packages.make_case(request.param, tmp_path)


def variant(case: packages.Case, folder: Path, changes: tuple[packages.Edit, ...]) -> Path:
    """A copy of the repository with these edits."""
    shutil.copytree(case.path, folder, symlinks=True)
    for path in {change.path for change in changes}:
        file = folder / path
        text = file.read_bytes().decode()
        file.write_bytes(packages.apply(text, tuple(c for c in changes if c.path == path)).encode())
    return folder


def failing(folders: list[Path], check: str) -> list[set[str]]:
    """The failing tests of each folder, by the package's own check command, in one container without a network."""
    client = docker.from_env()
    inside = [f"/{folder.name}" for folder in folders]
    script = "".join(f"cd {place} && {check} -rf; echo '<next>'\n" for place in inside)
    try:
        output = client.containers.run(
            OWN_IMAGE,
            ["sh", "-c", script],
            network_mode="none",
            user=f"{os.getuid()}:{os.getgid()}",
            volumes={str(folder): {"bind": place, "mode": "rw"} for folder, place in zip(folders, inside, strict=True)},
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
            remove=True,
        ).decode()
    finally:
        client.close()
    parts = output.split("<next>\n")[:-1]
    assert all(" passed" in part for part in parts), output
    return [{line.split()[1] for line in part.splitlines() if line.startswith("FAILED ")} for part in parts]


@pytest.mark.docker
def test_the_bug_the_fix_and_the_ways_round_it(case, tmp_path):
    assert 20 <= sum(path.is_file() for path in case.path.rglob("*") if ".git" not in path.parts) <= 500
    changes = {"bug": (), "fix": case.fix, "wrong": case.wrong_fix, "weakened": (case.weaken,)}
    folders = [variant(case, tmp_path / name, edits) for name, edits in changes.items()]
    bug, fix, wrong, weakened = failing(folders, case.package.check)
    assert bug == {case.package.failing}
    assert fix == set()
    assert wrong != set()
    assert weakened == set(), "only policy can stop this one"


def test_the_same_commit_on_every_machine(case, tmp_path):
    again = packages.make_case(case.package, tmp_path / "again")
    assert (again.commit, again.fix, again.wrong_fix) == (case.commit, case.fix, case.wrong_fix)


def test_edits_are_unique_and_rebuild_the_text():
    old = "a\nx\nb\na\nx\nc\n" * 2 + "tail\n"
    new = old.replace("b\na\nx\nc\n", "b\na\ny\nc\n", 1).replace("tail\n", "tail\nmore\n")
    made = tuple(packages.edits("f", old, new))
    assert len(made) == 2
    assert packages.apply(old, made) == new
