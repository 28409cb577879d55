"""One command's overhead and a sandbox's start, beside mini-swe-agent's Docker environment and docker-py's exec.

All in one run on the same image and machine, in turns, so that the ratios hold where the figures move.
`python tests/bench/bench_exec.py [--count N] [--json]`; exit code 1 where ours misses its own target. SWE-ReX stands
beside them where SWEREX_VENV names a virtual environment with swe-rex and aiohttp (of the image's minor version of Python).
"""

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from agent_harness.types import Command
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.image import OWN_IMAGE, ensure
from sandboxes import Factory

P50_MS, P95_MS, TIMES_FASTER = 3.0, 10.0, 25
SCRIPTS = {"true": "true", "echo": "echo hi", "ls": "ls / >/dev/null", "1 MB": "head -c 1000000 /dev/zero"}


@contextlib.contextmanager
def ours():
    factory = Factory()
    try:
        box = factory()
        yield lambda script: box.sandbox.execute(Command(script, timeout_s=30))
    finally:
        factory.close()


@contextlib.contextmanager
def mini_swe_agent():
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = folder
        from minisweagent.environments.docker import DockerEnvironment

        quiet = logging.getLogger("bench")
        environment = DockerEnvironment(image=OWN_IMAGE, cwd="/tmp", run_args=["--network", "none"], logger=quiet)
        try:
            yield lambda script: environment.execute({"command": script})
        finally:
            with contextlib.closing(connect()) as client:  # its own cleanup takes ten seconds in the background
                client.api.remove_container(environment.container_id, force=True)
            environment.container_id = None


@contextlib.contextmanager
def docker_py():
    with contextlib.closing(connect()) as client:
        container = client.containers.run(OWN_IMAGE, ["sleep", "3600"], detach=True, network_mode="none")
        try:
            yield lambda script: container.exec_run(["bash", "-c", script])
        finally:
            container.remove(force=True)


SWEREX_CLIENT = """
import asyncio, json, sys
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime
async def main():
    runtime = RemoteRuntime(auth_token="bench", host="http://" + sys.argv[1], port=8000, timeout=5)
    while not (await runtime.is_alive()).is_alive:
        await asyncio.sleep(0.05)
    await runtime.create_session(CreateBashSessionRequest())
    for line in sys.stdin:
        await runtime.run_in_session(BashAction(command=json.loads(line), timeout=30, check="ignore"))
        print("ok", flush=True)
asyncio.run(main())
"""


@contextlib.contextmanager
def swe_rex():
    venv = Path(os.environ["SWEREX_VENV"])
    [site] = venv.glob("lib/python3.*/site-packages")
    with contextlib.closing(connect()) as client:
        words = ["python3", "-m", "swerex.server", "--auth-token", "bench"]
        mount = {str(site): {"bind": "/swerex", "mode": "ro"}}
        place = {"environment": {"PYTHONPATH": "/swerex"}, "volumes": mount}
        container = client.containers.run(OWN_IMAGE, words, detach=True, **place)
        try:
            container.reload()
            address = container.attrs["NetworkSettings"]["IPAddress"]
            run = [venv / "bin/python", "-c", SWEREX_CLIENT, address]
            with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as talk:

                def way(script):
                    print(json.dumps(script), file=talk.stdin, flush=True)
                    assert talk.stdout.readline() == "ok\n"

                yield way
                talk.stdin.close()
        finally:
            container.remove(force=True)


RIVALS = {"ours": ours, "docker-py exec_run": docker_py, "mini-swe-agent": mini_swe_agent}
if os.environ.get("SWEREX_VENV"):
    RIVALS["swe-rex"] = swe_rex


def milliseconds(call, *args):
    begun = time.perf_counter()
    call(*args)
    return (time.perf_counter() - begun) * 1000


def spread(values):
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p95": ordered[int(len(ordered) * 0.95)]}


def latencies(count):
    """Milliseconds of each script by each way: in turns of twenty, after the last one's remains are gone."""
    found = {name: {script: [] for script in SCRIPTS} for name in RIVALS}
    with contextlib.ExitStack() as stack:
        ways = {name: stack.enter_context(make()) for name, make in RIVALS.items()}
        for way in ways.values():
            way("true")
        for _ in range(-(-count // 20)):
            for name, way in ways.items():
                time.sleep(0.5)
                for script, text in SCRIPTS.items():
                    found[name][script] += [milliseconds(way, text) for _ in range(20)]
    return {name: {script: spread(values) for script, values in scripts.items()} for name, scripts in found.items()}


def starts(count):
    """Milliseconds from nothing to the first answer, the removal after it not counted."""
    found = {name: [] for name in RIVALS}
    for _ in range(count):
        for name, make in RIVALS.items():
            with contextlib.ExitStack() as stack:
                found[name].append(milliseconds(lambda: stack.enter_context(make())("true")))
    return {name: spread(values) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ensure(lambda text: print(text, file=sys.stderr))
    result = {"command_ms": latencies(options.count), "start_ms": starts(max(3, options.count // 10))}
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        base = result["command_ms"]["ours"]
        for script in SCRIPTS:
            for name, scripts in result["command_ms"].items():
                row = scripts[script]
                ratio = row["p50"] / base[script]["p50"]
                print(f"{script:6} {name:20} p50 {row['p50']:8.2f} ms   p95 {row['p95']:8.2f} ms   {ratio:6.1f} x ours")
        for name, row in result["start_ms"].items():
            ratio = row["p50"] / result["start_ms"]["ours"]["p50"]
            print(f"start  {name:20} p50 {row['p50']:8.0f} ms   p95 {row['p95']:8.0f} ms   {ratio:6.1f} x ours")
    mine = result["command_ms"]["ours"]["true"]
    faster = result["command_ms"]["mini-swe-agent"]["true"]["p50"] / mine["p50"]
    held = mine["p50"] <= P50_MS and mine["p95"] <= P95_MS and faster >= TIMES_FASTER
    target = f"p50 <= {P50_MS} ms, p95 <= {P95_MS} ms, {TIMES_FASTER} times faster than mini-swe-agent's"
    print(f"target {target}: {'held' if held else 'MISSED'} ({faster:.0f} times)", file=sys.stderr)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
