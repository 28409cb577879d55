"""What a stage does with an engine that does not answer any more."""

import threading

from agent_harness.errors import SandboxLost
from agent_harness.stage import closed_when, shut
from fakes.sandbox import FakeSandbox


class Stuck(FakeSandbox):
    """A sandbox whose engine is gone."""

    def close(self) -> None:
        super().close()
        raise SandboxLost("container x cannot be removed", why="connection refused")


def test_a_container_that_stays_is_said_and_takes_nothing_along(tmp_path, capfd):
    assert not shut(Stuck(tmp_path))
    assert "connection refused" in capfd.readouterr().err
    assert shut(FakeSandbox(tmp_path))


def test_the_watch_on_a_signal_does_not_die_of_it(tmp_path, capfd):
    stop, sandbox = threading.Event(), Stuck(tmp_path)
    stop.set()
    with closed_when(stop, sandbox):
        deadline = threading.Event()
        while not sandbox.closed and not deadline.wait(0.01):
            pass
    assert "Traceback" not in capfd.readouterr().err
