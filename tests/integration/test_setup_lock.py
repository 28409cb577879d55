"""What the lock leaves out is not needed: real calls with those packages made impossible to import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from fakes.openai_server import OpenAIServer, call

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import importlib, os, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LEFT_OUT:
            raise ModuleNotFoundError(f"{name} is left out", name=name)

sys.meta_path.insert(0, Absent())
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", MSWEA_SILENT_STARTUP="1")
for module in MODULES:
    importlib.import_module(module)
import litellm
tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
reply = litellm.completion(
    model="openai/coder", api_base=BASE, api_key="none", tools=[tool], messages=[{"role": "user", "content": "hello"}],
    num_retries=0, max_retries=0, timeout=20,
)
print(reply.choices[0].message.tool_calls[0].function.arguments)
"""


def left_out() -> list[str]:
    lines = (ROOT / "scripts/lock-left-out.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def vendor_modules() -> list[str]:
    """Every vendor module that the adapters and the sandbox import, read off their source."""
    found = set()
    for file in [*(ROOT / "adapters").rglob("*.py"), *(ROOT / "sandbox").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    return sorted(name for name in found if name.split(".")[0] in {"docker", "litellm", "minisweagent", "openai"})


def test_the_vendors_work_without_what_is_left_out():
    modules = vendor_modules()
    assert {"docker", "litellm", "minisweagent.agents.default"} <= set(modules)
    with OpenAIServer([call("bash", {"command": "ls"})]) as server:
        names = {name.replace("-", "_") for name in left_out()}
        head = f"LEFT_OUT = {names!r}\nMODULES = {modules!r}\nBASE = {server.base_url!r}\n"
        done = subprocess.run([sys.executable, "-c", head + PROBE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"command"' in done.stdout
    assert "ls" in done.stdout


def test_nothing_left_out_is_locked():
    for name in ("requirements.txt", "requirements-check.txt"):
        locked = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / name).read_text()))
        assert locked.isdisjoint({*left_out(), "pandas", "pyarrow", "numpy"})
        assert not {"1.82.7", "1.82.8"} & set(re.findall(r"(?m)^litellm==(\S+)", (ROOT / name).read_text()))
