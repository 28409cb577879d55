"""Ten thousand randomised runs of several processes and threads on one store, and what a reservation costs.

    PYTHONPATH=tests python tests/bench/bench_budgets.py [--runs 10000]

Fails where a ceiling was passed by a nano-dollar, a refusal had no reason, or the sums do not agree.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from agent_harness.clock import SystemClock
from agent_harness.config import BudgetSettings
from agent_harness.queue.spending import Spending
from agent_harness.store import Store
from agent_harness.types import Limits, Spend
from fakes.queues import quick_folder
from fakes.spenders import WIDE, role, storm

LIMITS = Limits(WIDE, WIDE, 10**15, 10**6)


def call_ms(url: str, rounds: int = 500) -> float:
    """Milliseconds of a reservation and its settlement, nobody else there."""
    store = Store.open(url)
    run = Spending(store, SystemClock(), BudgetSettings()).budget("r", "i", LIMITS, role(LIMITS))
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        run.settle(run.reserve(Spend(1, 100, 100)), Spend(1, 50, 50))
        took.append((time.perf_counter() - began) * 1000)
    store.close()
    return median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    with quick_folder() as folder:
        print(f"reserve and settle, alone      p50 {call_ms(f'sqlite:///{folder}/one.db'):6.2f} ms")
        began = time.monotonic()
        told = storm(f"sqlite:///{folder}/many.db", runs)
        seconds = time.monotonic() - began
    for name, value in told.items():
        print(f"{name:<30} {value:10.6g}")
    print(f"no ceiling was passed, no refusal without a reason; {seconds:.0f} s")


if __name__ == "__main__":
    main()
