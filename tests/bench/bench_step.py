"""The harness's own time per step: everything but the model and the command. `python tests/bench/bench_step.py`

A fake model answers at once, a fake sandbox returns 8 KiB at once, and each step writes its events to a recorder in
memory. The first hundred steps of 200 and the last hundred are compared: a step must not grow with the history.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent_harness.types import Limits
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from fakes.model import bash, call, says
from fakes.roles import DONE, RoleKit
from fakes.sandbox import FakeSandbox, result

STEPS = 200
TARGET_MS = 10.0


def measure(steps: int = STEPS) -> list[float]:
    """Milliseconds between one question to the model and the next, in order."""
    asked: list[float] = []

    def answer(number: int):
        def reply(_request):
            asked.append(time.perf_counter())
            return says(call("submit", **DONE)) if number == steps else says(bash(f"echo {number}"))

        return reply

    count = iter(range(steps + 1))
    with tempfile.TemporaryDirectory() as root:
        kit = RoleKit(Path(root), loop=MiniSweLoop(), limits=Limits(steps + 1, 10**9, 10**15, 3600.0))
        kit.sandbox = FakeSandbox(Path(root), act=lambda _: result(f"{next(count)} " + "some output line\n" * 480))
        ended = kit.run(*[answer(number) for number in range(steps + 1)])
    if ended.ended != "submitted":
        raise SystemExit(f"the run ended {ended.ended}: {ended.detail}")
    return [1000 * (after - before) for before, after in pairwise(asked)]


def main() -> int:
    """Print the figures; 1 when the target is missed."""
    took = measure()
    first, last = took[: len(took) // 2], took[len(took) // 2 :]
    p95 = quantiles(took, n=20)[-1]
    print(
        f"own time per step over {len(took)} steps: p50 {median(took):.2f} ms, p95 {p95:.2f} ms (target p50 {TARGET_MS:g})"
    )
    print(
        f"steps 1-{len(first)}: p50 {median(first):.2f} ms; steps {len(first) + 1}-{len(took)}: p50 {median(last):.2f} ms"
    )
    return int(median(took) > TARGET_MS)


if __name__ == "__main__":
    raise SystemExit(main())
