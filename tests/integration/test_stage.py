"""What a stage does with an engine that does not answer any more."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from agent_harness.errors import SandboxLost
from agent_harness.stage import Stage, closed_when, hold, remove_tree, shut
from fakes.sandbox import FakeSandbox


class Stuck(FakeSandbox):
    """A sandbox whose engine is gone."""

    def close(self) -> None:
        super().close()
        raise SandboxLost("container x cannot be removed", why="connection refused")


def test_a_container_that_stays_is_said_and_takes_nothing_along(tmp_path, capsys, monkeypatch):
    assert not shut(Stuck(tmp_path))
    assert "connection refused" in capsys.readouterr().err
    closed = io.StringIO()
    closed.close()
    for stderr in closed, None:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert not shut(Stuck(tmp_path)), "nobody reads what is said"
    assert shut(FakeSandbox(tmp_path))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_watch_on_a_signal_does_not_die_of_it(tmp_path):
    stop, sandbox = threading.Event(), Stuck(tmp_path)
    stop.set()
    with closed_when(stop, sandbox):
        deadline = threading.Event()
        while not sandbox.closed and not deadline.wait(0.01):
            pass
    assert sandbox.closed


def test_folders_in_use_are_left_alone_and_others_go(tmp_path):
    (tmp_path / "dead").mkdir()
    with hold(tmp_path / "used"):
        assert Stage.clear(tmp_path) == ["dead"]
        assert os.listdir(tmp_path) == ["used"]
    assert Stage.clear(tmp_path) == ["used"]


def test_closed_folders_are_removed_and_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    outside.chmod(0o500)
    os.chown(tmp_path, 1000, 1000) if os.geteuid() == 0 else None
    tree = tmp_path / "tree"
    (tree / "shut" / "deeper").mkdir(parents=True)
    (tree / "shut" / "deeper" / "file").write_text("x")
    (tree / "shut" / "link").symlink_to(outside)
    for path in (tree / "shut" / "deeper", tree / "shut", tree):
        os.chown(path, 1000, 1000) if os.geteuid() == 0 else None
        path.chmod(0)
    child = os.fork()
    if not child:
        try:
            top = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(1000)
                os.setuid(1000)
            os.fchdir(top)
            remove_tree(Path("tree"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not tree.exists()
    assert (outside / "kept").is_dir()
    assert outside.stat().st_mode & 0o777 == 0o500
