"""End to end: a project folder, a scripted provider over HTTP, everything else real."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_harness.app import App
from agent_harness.config import load
from agent_harness.demo import make_repository
from agent_harness.receipt import RunReport
from agent_harness.types import Event, NewItem
from fakes.openai_server import OpenAIServer

KEY = "sk-planted-canary-0123456789abcdef"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Desk:
    """A person's project folder with a scripted provider."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.server: OpenAIServer | None = None

    def settings(self, text: str = "", *, checks: str = '["python3 -m pytest -q"]', keep: str = '["tests/**"]') -> None:
        url = self.server.base_url if self.server else "http://127.0.0.1:9/v1"
        route = 'base_url = "{}"\napi_key_env = "SCRIPTED_KEY"\nprice = {{ input = "3.00", output = "15.00" }}\ntimeout_s = 20\n'
        (self.folder / "harness.toml").write_text(
            f"[project]\nchecks = {checks}\n[policy]\nkeep = {keep}\n"
            f'[routes.coder]\nmodel = "openai/coder"\n{route.format(url)}'
            f'[routes.critic]\nmodel = "openai/critic"\n{route.format(url)}'
            '[roles.implementer]\nroutes = ["coder"]\n[roles.reviewer]\nroutes = ["critic"]\n' + text
        )

    def state(self) -> Path:
        loaded = load(self.folder)
        return loaded.config.state_dir(loaded.root)

    @contextmanager
    def serving(self, **script) -> Iterator[OpenAIServer]:
        with OpenAIServer({"coder": script.get("coder", ()), "critic": script.get("critic", ())}) as self.server:
            yield self.server

    @contextmanager
    def app(self, **options) -> Iterator[App]:
        loaded = load(self.folder)
        with App(loaded.config, loaded.root, **options) as app:
            yield app

    def run(self, app: App, item: str | None = None, *, cancelled: threading.Event | None = None) -> RunReport:
        (report,) = app.run(item, False, self.events.append, cancelled or threading.Event())
        return report

    def add(self, app: App, **fields) -> str:
        item, _ = app.queue.add(NewItem(**{"title": "Splitting loses cents", "brief": "Fix it.", **fields}))
        return item.id


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    folder = tmp_path / "a project ünïcode"
    folder.mkdir()
    make_repository(folder)
    return Desk(folder)
