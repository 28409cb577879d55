"""Many sandboxes at once: what each costs while idle, what sixteen busy ones answer in, and what removal costs nobody.

`python tests/bench/bench_density.py [--idle 200] [--image IMAGE]`; exit code 1 where a target is missed. Memory is the
proportional share (PSS) of a container's process 1 and of its shim, and what the engine's own processes grew by.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from agent_harness.types import Command
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.image import OWN_IMAGE, ensure
from sandboxes import Factory

IDLE_MIB, BUSY_P95_MS, MEGABYTE_MS, START_RATIO = 10.0, 100.0, 40.0, 1.1
BUSY = 16


def pss(pid):
    """MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def engine_mib():
    names = {"dockerd", "containerd"}
    pids = [
        p.name
        for p in Path("/proc").glob("[0-9]*")
        if (p / "comm").exists() and (p / "comm").read_text().strip() in names
    ]
    return sum(map(pss, pids))


def milliseconds(call):
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


def spread(values):
    ordered = sorted(values)
    return {"p50": round(statistics.median(ordered), 2), "p95": round(ordered[int(len(ordered) * 0.95)], 2)}


def idle(count, changes):
    """Starts `count`, four at a time, and weighs them."""
    factory = Factory()
    try:
        before = engine_mib()
        begun = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            boxes = list(pool.map(lambda _: factory(memory=512 << 20, tmp_size=64 << 20, **changes), range(count)))
        seconds = time.monotonic() - begun
        with contextlib.closing(connect()) as client:
            pids = [client.api.inspect_container(box.sandbox.describe()["name"])["State"]["Pid"] for box in boxes]
        own, shims = statistics.mean(map(pss, pids)), statistics.mean(map(pss, map(parent, pids)))
        grown = max(0.0, engine_mib() - before) / count
        one = [milliseconds(lambda: boxes[0].run("true")) for _ in range(100)]
        begun = time.monotonic()
        closed = [milliseconds(box.sandbox.close) for box in boxes]
        each = {"process_1": round(own, 2), "shim": round(shims, 2), "engine": round(grown, 2)}
        return {
            "count": count,
            "start_s_each": round(seconds / count, 3),
            "mib_each": each | {"sum": round(own + shims + grown, 2)},
            "true_ms_beside_them": spread(one),
            "close_ms": spread(closed),
        }
    finally:
        factory.close()


def busy(changes):
    """Milliseconds of `true` while all of them run one after the other."""
    factory = Factory()
    try:
        boxes = [factory(memory=512 << 20, tmp_size=64 << 20, **changes) for _ in range(BUSY)]
        found = []

        def work(box):
            found.extend([milliseconds(lambda: box.run("true")) for _ in range(60)])

        threads = [threading.Thread(target=work, args=(box,)) for box in boxes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        big = Command("head -c 1000000 /dev/zero", timeout_s=30)
        return spread(found), spread([milliseconds(lambda: boxes[0].sandbox.execute(big)) for _ in range(40)])
    finally:
        factory.close()


def first_answers(changes, count=15):
    """Create to first answer, beside `docker run` of the same image, in turns; the same network for both."""
    factory, ours, theirs = Factory(), [], []
    words = ["docker", "run", "--network", "none", "--name"]
    try:
        factory(**changes)
        for number in range(count):
            spec = factory.spec(**changes)
            boxes = []
            ours.append(
                milliseconds(lambda: boxes.append(factory.engine.start(spec)) or boxes[0].execute(Command("true", 30)))
            )
            boxes[0].close()
            name = f"sandbox-bench-{number}"
            theirs.append(milliseconds(lambda: subprocess.run([*words, name, spec.image, "true"], check=True)))
            subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)
        return {"ours": spread(ours), "docker run": spread(theirs)}
    finally:
        factory.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=200)
    parser.add_argument("--image", default="", help="another image, such as one without Python")
    options = parser.parse_args()
    ensure(lambda text: print(text, file=sys.stderr))
    changes = {"image": options.image or OWN_IMAGE}
    first = first_answers(changes)
    true, megabyte = busy(changes)
    many = idle(options.idle, changes)
    ratio = first["ours"]["p50"] / first["docker run"]["p50"]
    held = {
        f"first answer <= {START_RATIO} x docker run ({ratio:.2f})": ratio <= START_RATIO,
        f"{BUSY} busy: p95 <= {BUSY_P95_MS} ms ({true['p95']})": true["p95"] <= BUSY_P95_MS,
        f"1 MB <= {MEGABYTE_MS} ms ({megabyte['p50']})": megabyte["p50"] <= MEGABYTE_MS,
        f"idle <= {IDLE_MIB} MiB ({many['mib_each']['sum']})": many["mib_each"]["sum"] <= IDLE_MIB,
    }
    print(json.dumps({"first_answer_ms": first, "busy_true_ms": true, "megabyte_ms": megabyte, "idle": many}, indent=1))
    for name, well in held.items():
        print(f"{name}: {'held' if well else 'MISSED'}", file=sys.stderr)
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
