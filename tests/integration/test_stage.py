"""What a stage does with an engine that does not answer any more."""

import io
import sys
import threading

import pytest

from agent_harness.errors import SandboxLost
from agent_harness.stage import closed_when, shut
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
