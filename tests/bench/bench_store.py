"""Prints what the store costs: durable appends, claims, opening, verifying. `PYTHONPATH=tests python tests/bench/bench_store.py`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from agent_harness.clock import SystemClock
from agent_harness.redact import Redactor
from agent_harness.store import Store
from agent_harness.types import NewItem, Settlement
from fakes.queues import Desk


def timed(name: str, act: Callable[[int], object], rounds: int) -> None:
    act(0)
    took = []
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        act(number)
        took.append((time.perf_counter() - start) * 1000)
    cuts = quantiles(took, n=100)
    print(f"{name:<44} p50 {cuts[49]:7.2f} ms   p99 {cuts[98]:7.2f} ms   ({rounds} rounds)")


def bare_sync(folder: str) -> Callable[[int], object]:
    handle = os.open(Path(folder) / "plain", os.O_CREAT | os.O_WRONLY)

    def act(_: int) -> None:
        os.write(handle, b"x" * 4096)
        os.fdatasync(handle)

    return act


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        desk = Desk.open(url, clock=SystemClock())
        recorder = desk.audit.recorder("item", "run")
        data = {"role": "implementer", "call": 7, "route": "main", "model": "m", "seconds": 1.5}
        output = os.urandom(4096).hex()
        timed("this disk alone: write 4 KB and sync it", bare_sync(folder), 300)
        timed("append an event", lambda n: recorder.event("model.asked", data | {"n": n}), 500)
        timed("append an event with a body of 8 KB", lambda n: recorder.event("x", data, {"b": f"{n}{output}"}), 300)
        desk.queue.add_all([NewItem("t", "b") for _ in range(301)])

        def cycle(_: int) -> None:
            claim = desk.queue.claim("w", "r")
            assert claim is not None
            desk.queue.settle(claim, Settlement.DONE, reason="ok")

        timed("claim and settle an item", cycle, 300)
        timed("open the store and close it", lambda _: Store.open(url).close(), 50)
        timed("the root of the log", lambda _: desk.audit.root(), 200)
        size = desk.audit.root()[0]
        timed(f"verify {size} events", lambda _: desk.audit.verify(), 5)
        redactor = Redactor({f"KEY_{n}": f"sk-{n}-{os.urandom(16).hex()}" for n in range(4)})
        text = (output * 8)[:65536]
        timed("redact 64 KB (4 secrets, none inside)", lambda _: redactor(text), 100)
        desk.store.close()


if __name__ == "__main__":
    main()
