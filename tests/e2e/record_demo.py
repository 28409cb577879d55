"""Record the demonstration's answers anew: the scripted server speaks, the real harness runs, `--record` writes.

python tests/e2e/record_demo.py        (after a change of prompts, tools, protocol or of the demonstration's files)
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent_harness import demo
from agent_harness.app import App
from agent_harness.config import load
from e2e import scripts
from fakes.openai_server import OpenAIServer


def main() -> int:
    script = {"coder": scripts.IMPLEMENTER, "critic": scripts.REVIEWER}
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(script) as server:
        root = demo.make_repository(Path(folder) / "bill")
        settings = (root / demo.SETTINGS).read_text()
        head = settings.partition("[routes.recorded]")[0]
        for name in ("coder", "critic"):
            head += f'[routes.{name}]\nmodel = "openai/{name}"\nbase_url = "{server.base_url}"\n'
            head += 'price = { input = "3.00", output = "15.00" }\n'
        head += '[roles.implementer]\nroutes = ["coder"]\n[roles.reviewer]\nroutes = ["critic"]\n'
        (root / demo.SETTINGS).write_text(head)
        loaded = load(root, env={})
        fresh = Path(folder) / "recording.jsonl"
        with App(loaded.config, loaded.root, record=fresh) as app:
            item, _ = app.queue.add(demo.ITEM)
            (report,) = app.run(item.id, False, lambda event: None, threading.Event())
        print(report.outcome, report.reason)
        if report.exit == 0:
            demo.RECORDING.write_bytes(fresh.read_bytes())
        return int(report.exit)


if __name__ == "__main__":
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    sys.exit(main())
