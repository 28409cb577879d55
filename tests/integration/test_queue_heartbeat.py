import os
import subprocess
import sys
import threading
import time

import pytest

from agent_harness import worker
from agent_harness.clock import SystemClock
from agent_harness.errors import StoreFault
from agent_harness.queue import heartbeat
from fakes.queues import Desk


@pytest.fixture
def desk(tmp_path):
    desk = Desk.at(tmp_path, clock=SystemClock())
    desk.add("a")
    yield desk
    desk.store.close()


def expires(desk):
    from agent_harness.store.tables import ITEM

    with desk.store.read() as tx:
        return tx.execute(ITEM.select()).one().expires_ms


def test_it_renews_again_and_again_until_its_end(desk):
    claim, lost = desk.claim(ttl_s=3), threading.Event()
    with heartbeat(desk.queue, claim, lost.set, ttl_s=3) as beat:
        until = time.monotonic() + 10
        while expires(desk) < claim.expires_ms + 900 and time.monotonic() < until:  # not by the first one alone
            time.sleep(0.05)
        assert time.monotonic() < until
    assert not lost.is_set()
    assert not beat.lost
    assert not any(thread.is_alive() for thread in beat._threads)


def test_it_reports_a_claim_that_was_taken(desk):
    claim, lost = desk.claim(), threading.Event()
    desk.queue.cancel("a")
    with heartbeat(desk.queue, claim, lost.set) as beat:
        assert lost.wait(5)
    assert beat.lost


class Unreachable:
    """A queue whose database does not answer: at once, or for ever."""

    def __init__(self, hangs: threading.Event | None = None) -> None:
        self.clock, self.hangs, self.asked = SystemClock(), hangs, 0

    def renew(self, claim, ttl_s, wait_s):
        self.asked += 1
        if self.hangs:
            self.hangs.wait(10)
        raise StoreFault("locked")


@pytest.mark.parametrize("hangs", [False, True])
def test_an_unreachable_database_is_unknown_until_the_claim_may_be_gone(desk, hangs):
    claim, times = desk.claim(ttl_s=0.6), []
    release = threading.Event()
    queue = Unreachable(release if hangs else None)
    lost = threading.Event()
    start = time.monotonic()
    with heartbeat(queue, claim, lambda: (times.append(time.monotonic() - start), lost.set()), ttl_s=0.6):
        assert lost.wait(3)
        release.set()
    assert len(times) == 1
    assert 0.3 < times[0] < 3
    assert hangs or queue.asked >= 2


def test_after_its_end_nothing_is_reported(desk):
    claim, lost = desk.claim(ttl_s=0.3), threading.Event()
    with heartbeat(desk.queue, claim, lost.set, ttl_s=0.3):
        pass
    time.sleep(0.4)
    assert not lost.is_set()


def test_a_worker_is_alive_until_its_process_ends():
    me = worker.this_worker()
    assert worker.this_worker() != me
    assert worker.alive(me) is True
    code = (
        "from agent_harness.worker import this_worker; import sys; print(this_worker(), flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other = child.stdout.readline().strip()
    assert worker.alive(other) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert worker.alive(other) is False  # not yet buried
    child.communicate()
    assert worker.alive(other) is False


def test_a_pid_used_again_is_not_the_worker():
    host, boot, pid, start, name = worker.this_worker().split("/")
    assert worker.alive("/".join((host, boot, pid, str(int(start) + 1), name))) is False


@pytest.mark.parametrize("change", [0, 1])
def test_another_host_or_boot_cannot_be_judged(change):
    parts = worker.this_worker().split("/")
    parts[change] += "x"
    assert worker.alive("/".join(parts)) is None
    assert worker.alive("w") is None
