"""The built wheel owns exactly the four import packages, the command, and their data."""

from __future__ import annotations

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"agent_harness", "agent_harness_adapters", "agent_harness_roles", "agent_harness_sandbox"}
DATA = {".toml", ".md", ".json"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built offline with the backend that the lock brings."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_it_owns_exactly_its_names(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert len(tops) == len(PACKAGES) + 1
    assert all(f"{name}/py.typed" in wheel.namelist() for name in PACKAGES)


def test_it_ships_every_file_of_the_source_and_no_test(wheel):
    sources = {
        str(path.relative_to(path.parents[len(path.relative_to(root).parts) - 1]))
        for root in (ROOT / folder for folder in ("harness", "adapters", "roles", "sandbox"))
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == sources
    assert {Path(name).suffix for name in inside} >= DATA
    assert "agent_harness_roles/implementer/role.toml" in inside
    assert "agent_harness_roles/reviewer/schema.json" in inside
    assert any("seccomp" in name and name.endswith(".json") for name in inside)
    assert not any(name.startswith("tests/") for name in inside)


def test_it_brings_the_command_and_its_needs(wheel):
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "agent-harness = agent_harness.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Name"] == "agent-harness-runner"
    assert metadata["Requires-Python"] == ">=3.11"
    needs = metadata.get_all("Requires-Dist") or []
    assert any(need.startswith("litellm") and "!=1.82.7" in need and "!=1.82.8" in need for need in needs)
