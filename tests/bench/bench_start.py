"""From `agent-harness run` to the first request at the model's server, and what of it is whose.

    PYTHONPATH=tests python tests/bench/bench_start.py [--runs 3]

The whole is measured on a local server, from the start of the process to the arrival of the first request. The same
run on recorded answers never imports litellm: it shows what the harness takes for itself. Beside both: the bare
`python -c "import litellm"`. The checks on the base are the project's own time and are taken off.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from agent_harness import demo
from agent_harness.app import App
from agent_harness.config import load
from agent_harness.types import Event
from agent_harness.types.kinds import Kind
from fakes.openai_server import OpenAIServer, fault

OWN_S = 1.0
Split = dict[str, float]


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    start(replay=False)  # what is compiled and cached once
    live, own, bare, interpreter, ours = [], [], [], [], []
    for _ in range(runs):  # in turn, so that whatever else this machine does falls on all of them
        live.append(start(replay=False))
        bare.append(python("import litellm"))
        own.append(start(replay=True))
        interpreter.append(python("pass"))
        ours.append(python("import agent_harness.cli.main, agent_harness.app"))
    whole, alone = middle([one["to the model"] for one in live]), middle([one["to the model"] for one in own])
    imported = middle(bare)
    print(f"run to the first request        {whole:6.2f} s   checks on the base taken off")
    print(f"  the same without litellm      {alone:6.2f} s   target {OWN_S:g} s")
    for name in own[0]:
        if name != "to the model":
            print(
                f"    {name:<28}{middle([one[name] for one in own]):6.2f} s   beside litellm {middle([one[name] for one in live]):6.2f} s"
            )
    print(
        f"  of it: bare interpreter {middle(interpreter):.2f} s, all modules of a run {middle(ours) - middle(interpreter):.2f} s"
    )
    print(f"bare `import litellm`           {imported:6.2f} s   ratio whole/import {whole / imported:.2f} (target 1.0)")
    return int(alone > OWN_S or whole > max(imported, OWN_S) * 1.05)


def middle(times: Sequence[float]) -> float:
    return statistics.median(times)


def python(code: str) -> float:
    """Seconds of a fresh interpreter that runs this."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    return time.monotonic() - began


def start(*, replay: bool) -> Split:
    """One run up to its first call, by name of its parts."""
    with tempfile.TemporaryDirectory() as folder, OpenAIServer([fault(401, "enough")], repeat=True) as server:
        root = demo.make_repository(Path(folder) / "bill")
        settings, route = root / "harness.toml", f'model = "openai/coder"\nbase_url = "{server.base_url}"'
        settings.write_text(settings.read_text().replace('model = "recorded/demo"', route))
        loaded = load(root, env={})
        with App(loaded.config, loaded.root) as app:
            item, _ = app.queue.add(demo.ITEM)
        words = ["--replay", str(demo.RECORDING)] if replay else []
        command = [sys.executable, "-m", "agent_harness.cli.main", "run", "--item", item.id, *words]
        began, began_ms = time.monotonic(), time.time_ns() / 1e6
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if not replay and not server.requests:
            sys.exit(f"no request came: {done.stderr}")
        with App(loaded.config, loaded.root) as app:
            events = app.audit.events(item=item.id)
        first = None if replay else server.requests[0].at - began
        return split(events, began_ms, first)


def split(events: Sequence[Event], began_ms: float, first_s: float | None) -> Split:
    """Seconds of the parts of a start, from what the log says."""

    def at(kind: str, purpose: str = "") -> float:
        found = next(one for one in events if one.kind == kind and purpose in {"", one.data.get("purpose")})
        return (found.at_ms - began_ms) / 1000

    asked, ready = at(Kind.MODEL_ASKED), at(Kind.SANDBOX_READY, "implementer")
    ran = [(one.at_ms - began_ms) / 1000 for one in events if one.data.get("where") == "checks-base"]
    checks = max(0.0, max(ran) - max(ready, min(ran)))  # while nothing but the checks was waited for
    claimed, base = at(Kind.ITEM_CLAIMED), at(Kind.SANDBOX_STARTING)
    return {
        "interpreter, imports, store": claimed,
        "base fetched and laid out": base - claimed,
        "both sandboxes started": max(ready, min(ran)) - base,
        "checks on the base (taken off)": checks,
        "the role begins": asked - max(ready, max(ran)),
        "the first call": (first_s or asked) - asked,
        "to the model": (first_s or asked) - checks,
    }


if __name__ == "__main__":
    raise SystemExit(main())
