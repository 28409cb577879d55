"""Which folders of the host may be shown inside."""

import os
import socket
from pathlib import Path

import pytest

from agent_harness.errors import UsageError
from agent_harness.mounts import caches, declared
from agent_harness.types import Mount

TABLE = "36 35 98:0 / {} rw,noatime - ext4 /dev/x rw\n"


@pytest.fixture
def place(tmp_path):
    for name in ("state", "repo/.git", "repo/data", "data/inner", "data set"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "file").write_text("x")
    return tmp_path


def ask(place, *mounts, table=""):
    return declared(mounts, state=place / "state", source=str(place / "repo"), table=table)


def test_folders_and_files_are_shown_where_asked(place):
    asked = [
        Mount(f"{place}/data", "/data", True), Mount(f"{place}/file", "/opt/file", True),
        Mount(f"{place}/repo/data", "/repo-data", True), Mount(f"{place}/data set", "/set/../set", False),
    ]  # fmt: skip
    found = ask(place, *asked)
    assert [mount.target for mount in found] == ["/data", "/opt/file", "/repo-data", "/set"]
    assert [mount.read_only for mount in found] == [True, True, True, False]


@pytest.mark.parametrize("source", ["/", "/proc", "/sys/kernel", "/dev", "/run", "/var/run/docker.sock", "/etc/ssl", "/var/lib",
                                    "~", "~/.ssh", "{}/link", "{}/state", "{}/repo", "{}/repo/.git", "{}", "{}/none", "data"])  # fmt: skip
def test_what_would_open_the_host_is_refused(place, source):
    with pytest.raises(UsageError, match="is refused"):
        ask(place, Mount(source.format(place), "/data", True))


@pytest.mark.parametrize("below", ["", "agent.sock", "deep/er/docker.sock"])
@pytest.mark.parametrize("kind", ["socket", "named pipe"])
def test_what_speaks_with_the_machine_is_refused(place, below, kind, monkeypatch):
    top = place / "shown"
    at = top / below
    at.parent.mkdir(parents=True, exist_ok=True)
    if kind == "socket":
        monkeypatch.chdir(at.parent)  # a socket's path is short
        socket.socket(socket.AF_UNIX).bind(at.name)
    else:
        os.mkfifo(at)
    with pytest.raises(UsageError, match=f"is refused: {at} is a {kind}"):
        ask(place, Mount(str(top), "/data", True))


def test_links_are_not_followed_and_large_trees_are_looked_at_in_part(place):
    (place / "data/docker.sock").symlink_to("/var/run/docker.sock")
    (place / "data/round").symlink_to(".")
    assert ask(place, Mount(f"{place}/data", "/data", True))


@pytest.mark.parametrize("target", ["/workspace", "/workspace/x", "/base", "/tmp/x", "/scratch", "/proc", "/dev/shm", "/sys", "/etc/x",
                                    "/run/x", "/cache/pip", "/", "//", "data", "/x/../etc", "/data/../workspace"])  # fmt: skip
def test_what_would_cover_the_harness_own_places_is_refused(place, target):
    with pytest.raises(UsageError, match="target"):
        ask(place, Mount(f"{place}/data", target, True))


def test_a_writable_mount_is_neither_in_the_checkout_nor_seen_twice(place):
    with pytest.raises(UsageError, match="no run changes your checkout"):
        ask(place, Mount(f"{place}/repo/data", "/x", False))
    with pytest.raises(UsageError, match="overlap, and one is writable"):
        ask(place, Mount(f"{place}/data", "/x", True), Mount(f"{place}/data/inner", "/y", False))
    with pytest.raises(UsageError, match=r"targets .* overlap"):
        ask(place, Mount(f"{place}/data", "/x", True), Mount(f"{place}/data set", "/x/y", True))
    assert len(ask(place, Mount(f"{place}/data", "/x", True), Mount(f"{place}/data/inner", "/y", True))) == 2


def test_a_source_with_a_mount_point_below_is_refused(place):
    table = TABLE.format(f"{place}/data\\040set/in".replace(" ", "\\040"))
    with pytest.raises(UsageError, match="mounted below it"):
        ask(place, Mount(f"{place}/data set", "/x", True), table=table)
    assert ask(place, Mount(f"{place}/data", "/x", True), table=table + TABLE.format(f"{place}/data"))


def test_caches_are_the_projects_own_folders(tmp_path):
    (mount,) = caches(["pip"], tmp_path, read_only=True)
    assert mount == Mount(str(tmp_path / "caches/pip"), "/cache/pip", True)
    assert Path(mount.source).is_dir() and os.stat(mount.source).st_mode & 0o777 == 0o755
