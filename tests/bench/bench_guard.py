"""Prints what screening costs: ordinary commands one by one, then large ones. `PYTHONPATH=tests python tests/bench/bench_guard.py`."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

from agent_harness.guard import Guard

CORPUS = Path(__file__).parents[1] / "corpora" / "guard_ordinary.txt"
IMPORT = """import time; a = time.perf_counter(); from agent_harness.guard import Guard; Guard().screen('ls')
print((time.perf_counter() - a) * 1000)"""
LARGE = {
    "a here-document that writes a file": lambda n: (
        "cat > a.py <<'EOF'\n" + "print('git push')\n" * (n // 18) + "EOF\n"
    ),
    "statements": lambda n: "cd /workspace && ls -la | tail -1\n" * (n // 34),
    "one pipeline": lambda n: "a | " * (n // 4) + "a",
    "nested substitutions": lambda n: "$(" * (n // 2),
    "random characters": lambda n: "".join(random.Random(1).choices(" \n;|&<>(){}$\"'`\\abc=*#", k=n)),
}


def main() -> int:
    guard = Guard()
    first = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True, text=True).stdout
    print(f"import and first command {float(first):.1f} ms")
    took = []
    for command in CORPUS.read_text(encoding="utf-8").replace("%%\n", "").splitlines() * 3:
        start = time.perf_counter()
        guard.screen(command)
        took.append((time.perf_counter() - start) * 1000)
    cuts = quantiles(took, n=100)
    print(
        f"ordinary commands        p50 {cuts[49]:.3f} ms   p95 {cuts[94]:.3f} ms   p99 {cuts[98]:.3f} ms   (p50 limit 1 ms)"
    )
    for name, make in LARGE.items():
        times = []
        for size in (100_000, 1_000_000):
            start = time.perf_counter()
            guard.screen(make(size))
            times.append(time.perf_counter() - start)
        print(f"{name:<36} 100 KB {times[0]:6.2f} s   1 MB {times[1]:6.2f} s   x{times[1] / times[0]:.1f}")
    return 0 if cuts[49] <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
