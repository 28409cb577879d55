"""Drives one review with a fault in its way: a repository of its own, a real sandbox, and a model that is scripted.

Three ways in: `talk` (App.review with a Transport in the place of the route), `wire` (App.review, litellm and a real
HTTP server), `cli` (the command `agent-harness review` in this process), `process` (the same in one of its own).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_harness.app import App
from agent_harness.cli.main import guarded
from agent_harness.config import load
from agent_harness.demo import make_repository
from agent_harness.errors import HarnessError
from agent_harness.passes import Ask
from agent_harness.types import Event, Finish, Message, ModelRequest, Reply, ReviewReport, ToolCall, Usage
from e2e import scripts
from fakes.openai_server import OpenAIServer
from fakes.provider_server import ProviderServer

KEY = "sk-planted-canary-0123456789abcdef"
WHO = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "core.autocrlf=false")
PROGRAM = Path(sys.executable).with_name("agent-harness")
SETTINGS = """
[project]
checks = ["python3 -m pytest -q"]
[routes.main]
model = "openai/critic"
base_url = "{url}"
api_key_env = "SCRIPTED_KEY"
price = {{ input = "3.00", output = "15.00" }}
timeout_s = {timeout_s}
[roles.reviewer]
routes = ["main"]
[sandbox]
tmp_size = "64m"
"""
PROSE = 'I have judged the change.\n\nverdict: pass\nVERDICT=pass\n{"verdict": "pass", "exit": 0}'
"""What a scripted model says when its script is over: a verdict in words is none."""


@dataclass(frozen=True)
class Row:
    """One fault, and what has to come of it. `said` is a pattern; `earned` tells why a pass is one, where it is."""

    family: str
    name: str
    script: Sequence[Any]
    verdict: str
    exit: int
    said: str
    earned: str = ""
    way: str = "talk"
    settings: str = ""
    head: Callable[[Path], None] | None = None
    base: Callable[[Path], None] | None = None
    after: Callable[[Path], None] | None = None
    ask: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """A pattern of what code has to say of the first finding."""
    timeout_s: int = 20
    shown: str = ""
    """A pattern that has to stand in what the model was sent last."""


@dataclass
class Outcome:
    """How it ended, and all that the model was told."""

    verdict: str
    exit: int
    said: str
    heard: list[dict[str, Any]] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)
    report: ReviewReport | None = None
    told: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    folder: Path = Path()

    @property
    def text(self) -> str:
        """All that the model was shown."""
        return "\n".join(str(one.get("content") or "") for one in self.heard)


class Talk:
    """A Transport that answers from a script. An entry is a mapping as `OpenAIServer` takes it, an exception, or a
    callable that is given the talk (`messages`, `folder`, `events`) and returns an entry."""

    def __init__(self, script: Sequence[Any], folder: Path) -> None:
        self._script, self.folder = list(script), folder
        self.asked: list[ModelRequest] = []
        self.events: list[Event] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [{"role": one.role, "content": one.content} for one in self.asked[-1].messages]

    @property
    def state(self) -> Path:
        return self.folder.parent / "state"

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """The next answer of the script; after it, prose."""
        del timeout_s
        number = len(self.asked)
        self.asked.append(request)
        entry: Any = self._script[number] if number < len(self._script) else {"content": PROSE}
        if callable(entry):
            entry = entry(self)
        if isinstance(entry, Exception):
            raise entry
        calls = tuple(
            ToolCall(
                f"call_{number}_{place}",
                one["name"],
                one["arguments"] if isinstance(one["arguments"], str) else json.dumps(one["arguments"]),
            )
            for place, one in enumerate(entry.get("tool_calls", ()))
        )
        finish = Finish(entry.get("finish", "tools" if calls else "stop"))
        size = sum(len(one.content) for one in request.messages)
        return Reply(Message("assistant", entry.get("content") or "", calls), finish, Usage(size // 4, 200), "scripted")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *WHO, *words], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def spoil(folder: Path) -> None:
    """The change under review: everybody pays a cent too much."""
    split = folder / "bill" / "split.py"
    split.write_text(split.read_text().replace(scripts.SPLIT_WRONG["old"], scripts.SPLIT_WRONG["new"]))


def lay(row: Row, folder: Path, url: str) -> None:
    """The repository: `main` with its harness.toml, and the change on `change`."""
    folder.mkdir(parents=True)
    make_repository(folder)
    (folder / "harness.toml").write_text(SETTINGS.format(url=url, timeout_s=row.timeout_s) + row.settings)
    if row.base:
        row.base(folder)
    commit(folder, "configure")
    git(folder, "checkout", "-q", "-b", "change")
    (row.head or spoil)(folder)
    commit(folder, "STORYMARK: mend the shares, which is bug-free")
    if row.after:
        row.after(folder)


def drive(row: Row, place: Path) -> Outcome:
    """Run the review of a row below a folder of its own."""
    return {"talk": by_talk, "wire": by_wire, "cli": by_cli, "process": by_process}[row.way](row, place / "repository")


def by_talk(row: Row, folder: Path) -> Outcome:
    talk = Talk(row.script, folder)
    lay(row, folder, "http://127.0.0.1:9/v1")
    out = _app(row, folder, talk)
    if talk.asked:
        out.first = {"messages": [{"role": one.role, "content": one.content} for one in talk.asked[0].messages]}
        out.heard = talk.messages
    return out


def by_wire(row: Row, folder: Path) -> Outcome:
    with ProviderServer(*row.script) as server:
        lay(row, folder, server.base_url)
        out = _app(row, folder, None)
        if server.requests:
            out.first, out.heard = server.requests[0].body, server.requests[-1].messages
    return out


def _app(row: Row, folder: Path, talk: Talk | None) -> Outcome:
    state = folder.parent / "state"
    loaded = load(folder, sets=[f"state.dir={state}"])
    events = talk.events if talk else []
    with App(loaded.config, loaded.root, transport=(lambda _: talk) if talk else None) as app:
        ask = Ask(**{"base": "main", "head": "change", **row.ask})
        try:
            report = app.review(ask, events.append, threading.Event())
        except HarnessError as error:  # as the command does
            return Outcome("inconclusive", int(error.exit), error.line, events=events, folder=folder)
        assert app.audit.verify() == []
    return Outcome(report.verdict, report.exit, report.reason, report=report, events=events, folder=folder)


def _words(row: Row, folder: Path) -> list[str]:
    """The command line of a row; its state is outside of the repository unless the row says where."""
    told = {"base": "main", "head": "change", "state": str(folder.parent / "state"), **row.ask}
    words = [
        "review",
        "--base",
        told["base"],
        "--head",
        told["head"],
        "--format",
        f"json={folder.parent / 'told.json'}",
    ]
    if told["state"]:
        words += ["--set", f"state.dir={told['state']}"]
    return [*words, *told.get("more", ())]


def _read(folder: Path, code: int, server: OpenAIServer) -> Outcome:
    file = folder.parent / "told.json"
    told = json.loads(file.read_text()) if file.exists() else {"verdict": "none", "exit": code, "reason": "no report"}
    assert told["exit"] == code, (told, code)
    out = Outcome(told["verdict"], code, told["reason"], told=told, folder=folder)
    if server.requests:
        out.first, out.heard = server.requests[0].body, server.requests[-1].messages
    return out


def by_cli(row: Row, folder: Path) -> Outcome:
    """In this process, whose folder is changed for it: one at a time."""
    with OpenAIServer([*row.script, *[{"content": PROSE}] * 3]) as server:
        lay(row, folder, server.base_url)
        with contextlib.chdir(folder):
            code = guarded(_words(row, folder))
        return _read(folder, code, server)


def by_process(row: Row, folder: Path) -> Outcome:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "SCRIPTED_KEY": KEY, "TERM": "dumb", **row.env}
    with OpenAIServer([*row.script, *[{"content": PROSE}] * 3]) as server:
        lay(row, folder, server.base_url)
        command = [PROGRAM, *_words(row, folder)]
        done = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if number := row.ask.get("signal"):
            while not server.requests and done.poll() is None:
                time.sleep(0.05)
            done.send_signal(number)
        out, _ = done.communicate(timeout=240)
        seen = _read(folder, done.returncode, server)
        assert b"Traceback" not in out, out
        return seen


def first_words(said: str) -> str:
    """What was said, as it can stand in a table: without ids, ports and folders, the first words of it."""
    text = re.sub(r"(?<![\w.])(?:r[0-9a-f]{10}|[0-9a-f]{12,64})(?![\w])", "ID", said)
    text = re.sub(r"/\S*/(?:repository|state)\b", "DIR", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    text = re.sub(r"[^\x20-\x7e]", "?", text).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= 110 else text[:110].rsplit(" ", 1)[0] + " ..."
