"""The harness's own time per step in a real run: queue, log, sandbox and all, the model's answers recorded.

    python tests/bench/bench_run.py [--runs 3]

A step is from one question to the next. Its own time is what is left without the model and without the command.
Beside it: what mini-swe-agent's own Docker environment takes for one empty command, on the same image in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from agent_harness import demo
from agent_harness.app import App
from agent_harness.config import load
from agent_harness.types import Event
from agent_harness.types.kinds import Kind
from agent_harness_sandbox.image import OWN_IMAGE


class Steps:
    """Listens to a run and keeps each step's own milliseconds, and how long the whole run took to its parts."""

    def __init__(self) -> None:
        self.own_ms: list[float] = []
        self._asked: float | None = None
        self._other = 0.0

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if event.kind == Kind.MODEL_ASKED:
            if self._asked is not None:
                self.own_ms.append((now - self._asked - self._other) * 1000)
            self._asked, self._other = now, 0.0
        elif event.kind in {Kind.MODEL_ANSWERED, Kind.COMMAND_ENDED}:
            self._other += event.data["seconds"]
        elif event.kind == Kind.ROLE_ENDED:
            self._asked = None


def one(steps: Steps) -> float:
    """One demonstration; returns its seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = demo.make_repository(Path(folder) / "bill")
        loaded = load(root, env={})
        with App(loaded.config, loaded.root, replay=demo.RECORDING) as app:
            item, _ = app.queue.add(demo.ITEM)
            (report,) = app.run(item.id, False, steps, threading.Event())
        if report.exit:
            sys.exit(f"the run was not delivered: {report.reason}")
    return time.perf_counter() - began


def theirs(count: int) -> list[float]:
    """Milliseconds of `true` in mini-swe-agent's own Docker environment."""
    empty = tempfile.mkdtemp()
    os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_GLOBAL_CONFIG_DIR=empty)
    from minisweagent.environments.docker import DockerEnvironment

    environment = DockerEnvironment(image=OWN_IMAGE)
    took = []
    for _ in range(count):
        began = time.perf_counter()
        environment.execute({"command": "true"})
        took.append((time.perf_counter() - began) * 1000)
    subprocess.run(["docker", "rm", "-f", str(environment.container_id)], capture_output=True, check=True)
    environment.container_id = None
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    steps = Steps()
    whole = [one(steps) for _ in range(options.runs)]
    other = theirs(20)
    p50, p95 = statistics.median(steps.own_ms), sorted(steps.own_ms)[int(len(steps.own_ms) * 0.95)]
    print(f"own time per step      p50 {p50:6.1f} ms  p95 {p95:6.1f} ms  ({len(steps.own_ms)} steps, target p50 <= 10)")
    print(f"mini-swe-agent `true`  p50 {statistics.median(other):6.1f} ms  ratio {statistics.median(other) / p50:.1f}")
    print(f"whole run              p50 {statistics.median(whole):6.1f} s")


if __name__ == "__main__":
    main()
