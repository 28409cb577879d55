"""Real processes on one file: nothing twice, nothing lost, whoever is killed or stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from agent_harness.clock import SystemClock
from agent_harness.errors import StoreFault
from agent_harness.types import ItemState, NewItem, Settlement
from fakes.queues import Desk

WORKER = """
import json, sys
sys.path[:0] = {paths!r}
from agent_harness.clock import SystemClock
from agent_harness.types import Settlement
from agent_harness.worker import this_worker
from fakes.queues import Desk
desk = Desk.open(sys.argv[1], clock=SystemClock())
print("open", flush=True)
sys.stdin.readline()
me = this_worker()
"""
DRAIN = """
while (claim := desk.queue.claim(me, "r-" + me[-6:])) is not None:
    print(json.dumps([claim.item.id, claim.generation, claim.token]), flush=True)
    desk.queue.settle(claim, Settlement.DONE, reason="ok")
"""
CLAIM_AND_WAIT = """
claim = desk.queue.claim(me, "r")
if "deliver" in sys.argv: desk.queue.delivering(claim)
print(json.dumps([claim.item.id, claim.generation, claim.token]), flush=True)
sys.stdin.readline()
"""
CRASH_AT_COMMIT = """
import os, signal
desk.audit.redact = lambda text: os.kill(os.getpid(), signal.SIGKILL) if text == me else text
desk.queue.claim(me, "r")
"""
STOP_INSIDE = """
import os, signal
with desk.store.write():
    os.kill(os.getpid(), signal.SIGSTOP)
"""
SETTLE_LATE = """
claim = desk.queue.claim(me, "r", ttl_s=0.5)
print(json.dumps([claim.item.id, claim.generation, claim.token]), flush=True)
sys.stdin.readline()
from agent_harness.errors import ClaimLost
for act in (lambda: desk.queue.renew(claim), lambda: desk.queue.delivering(claim), lambda: desk.queue.settle(claim, Settlement.DONE, reason="late")):
    try:
        act()
        print("written", flush=True)
    except ClaimLost:
        print("refused", flush=True)
"""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def desk(url):
    desk = Desk.open(url, clock=SystemClock())
    yield desk
    assert desk.audit.verify() == []
    desk.store.close()


@pytest.fixture
def start(url):
    started = []

    def launch(code, *arguments):
        code = WORKER.format(paths=[path for path in sys.path if path]) + code
        process = subprocess.Popen(
            [sys.executable, "-c", code, url, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.communicate()


def ready(process):
    assert process.stdout.readline() == "open\n"
    process.stdin.write("\n")
    process.stdin.flush()
    return process


def test_eight_processes_claim_two_hundred_items_each_once(desk, start):
    desk.queue.add_all([NewItem(f"job {n}", "", id=f"j{n}") for n in range(200)])
    workers = [start(DRAIN) for _ in range(8)]
    for process in workers:
        assert process.stdout.readline() == "open\n"
    for process in workers:
        process.stdin.write("\n")
        process.stdin.flush()
    claims = []
    for process in workers:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        claims.append([json.loads(line) for line in out.splitlines()])
    assert Counter(item for mine in claims for item, _, _ in mine) == Counter(f"j{n}" for n in range(200))
    assert {generation for mine in claims for _, generation, _ in mine} == {1}
    assert len({token for mine in claims for _, _, token in mine}) == 200
    assert {item.state for item in desk.queue.items()} == {ItemState.DONE}
    assert min(len(mine) for mine in claims) >= 1  # nobody starves
    events = desk.audit.events()
    assert [event.seq for event in events] == list(range(1, 200 * 3 + 1))


def test_opening_one_new_file_at_once_works(start):
    for process in [start("") for _ in range(6)]:
        ready(process)
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.parametrize("stage", ["claimed", "deliver"])
def test_a_killed_worker_gives_its_item_back_at_once(desk, start, stage):
    desk.add("a")
    process = ready(start(CLAIM_AND_WAIT, stage))
    _, generation, _ = json.loads(process.stdout.readline())
    assert desk.queue.recover() == []
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert desk.queue.recover() == ["a"]
    item = desk.queue.get("a")
    assert (item.state, item.losses, item.generation) == (ItemState.READY, 1, generation)
    assert item.reason == "its worker's process ended without settling it"
    claim = desk.claim()
    assert claim.generation == generation + 1
    desk.queue.settle(claim, Settlement.DONE, reason="ok")


def test_a_worker_killed_inside_the_transaction_leaves_nothing(desk, start):
    desk.add("a")
    before = desk.audit.root()
    process = ready(start(CRASH_AT_COMMIT))
    process.wait(30)
    assert process.returncode == -signal.SIGKILL
    assert desk.audit.root() == before
    assert desk.queue.recover() == []
    assert desk.claim().generation == 1


def test_workers_killed_at_random_lose_and_repeat_nothing(desk, start):
    desk.queue.add_all([NewItem("job", "", id=f"j{n}") for n in range(120)])
    claims = []
    for round in range(6):
        pair = [ready(start(DRAIN)) for _ in range(2)]
        time.sleep(0.02 * round)
        for process in pair:
            process.kill()
            claims += [tuple(json.loads(line)) for line in process.communicate()[0].splitlines() if line.endswith("]")]
        desk.queue.recover()
        assert desk.audit.verify() == []
    while claim := desk.queue.claim("w", "r"):
        desk.queue.settle(claim, Settlement.DONE, reason="ok")
    states = Counter(item.state for item in desk.queue.items())
    assert states == {ItemState.DONE: 120}
    finished = Counter(event.item for event in desk.audit.events(kinds=["item.state"]) if event.data["new"] == "done")
    assert finished == Counter({f"j{n}": 1 for n in range(120)})
    assert len({(item, generation) for item, generation, _ in claims}) == len(claims)


def test_a_stopped_worker_is_refused_when_it_wakes(desk, start):
    desk.add("a")
    process = ready(start(SETTLE_LATE))
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    assert desk.queue.recover() == ["a"]
    owner = desk.claim()
    process.stdin.write("\n")
    process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    assert out.split() == ["refused"] * 3
    desk.queue.settle(owner, Settlement.DONE, reason="mine")


def test_a_worker_stopped_inside_a_write_stops_others_only_so_long(desk, start):
    desk.add("a")
    claim = desk.claim()
    process = ready(start(STOP_INSIDE))
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert desk.queue.get("a").state is ItemState.CLAIMED
    with pytest.raises(StoreFault, match="another process holds"):
        desk.queue.renew(claim, wait_s=0.2)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0
    assert desk.queue.renew(claim).expires_ms >= claim.expires_ms
