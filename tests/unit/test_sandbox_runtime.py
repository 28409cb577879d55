"""Which runc a warning is for: never one that has the fix, whatever its distribution calls it."""

import gzip

import pytest

from agent_harness_sandbox.runtime import FIXES, judge, open_escapes

LATE = [cve for cve in FIXES if cve.startswith("CVE-2025")]


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("1.1.11", list(FIXES)),
        ("1.1.5+ds1", list(FIXES)),
        ("1.1.12", LATE),
        ("1.2.0-rc.1", LATE),
        ("1.2.7", LATE),
        ("v1.2.8", []),
        ("1.2.9", []),
        ("1.3.2", LATE),
        ("1.3.3", []),
        ("1.4.0-rc.2", LATE),
        ("1.4.0-rc.3", []),
        ("1.4.0", []),
        ("2.0.0", []),
        ("none", []),
    ],
)
def test_a_version_is_held_against_its_own_line_of_releases(version, left):
    assert open_escapes(version) == left


def component(version, package):
    return [
        {"Name": "Engine", "Version": "1.1.1"},
        {"Name": "runc", "Version": version, "Details": {"GitCommit": package}},
    ]


def test_what_the_packages_own_changelog_names_is_not_cried_about(tmp_path):
    log = tmp_path / "changelog.gz"
    log.write_bytes(gzip.compress(b"runc (1.1.5+ds1-1+deb12u1) bookworm-security\n  * CVE-2024-21626: leaked fds\n"))
    found = judge(component("1.1.5+ds1", "1.1.5+ds1-1+deb12u1"), log)
    assert (found.ok, "CVE-2024-21626" in found.seen, "CVE-2025-31133" in found.seen) == (True, False, True)
    assert "the distribution may have patched it" in found.seen and "1.2.8" in found.fix
    other = judge(component("1.1.5+ds1", "1.1.5+ds1-1"), log)
    assert "CVE-2024-21626" in other.seen
    log.write_bytes(gzip.compress(f"runc (1.1.5+ds1-1+deb12u9) x\n {' '.join(FIXES)}\n".encode()))
    assert judge(component("1.1.5+ds1", "1.1.5+ds1-1+deb12u9"), log).fix == ""


def test_an_upstream_build_is_told_plainly_and_another_runtime_not_at_all(tmp_path):
    none = tmp_path / "none"
    found = judge(component("1.1.12", "v1.1.12-0-g51d5e946"), none)
    assert "may have" not in found.seen and "CVE-2025-52881" in found.seen
    assert judge([{"Name": "runsc", "Version": "release-1"}], none).fix == ""
    assert judge(component("1.3.4", "v1.3.4-0-gabc"), none).fix == ""


def test_podman_says_it_in_its_own_way(tmp_path):
    log = tmp_path / "changelog.gz"
    log.write_bytes(gzip.compress(f"runc (1.1.5+ds1-1+deb12u1) x\n {' '.join(FIXES)}\n".encode()))
    version = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev"
    about = {"Name": "OCI Runtime (runc)", "Version": version, "Details": {"Package": "runc_1.1.5+ds1-1+deb12u1_amd64"}}
    assert judge([about], log).seen == "runc 1.1.5+ds1"
    assert "CVE-2024-21626" in judge([about | {"Details": {}}], log).seen
