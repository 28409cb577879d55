"""Some faults of a provider in the way of a whole `agent-harness run`: exit code, spend, requests, the item after it."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from agent_harness.demo import make_repository
from e2e.conftest import Desk
from fakes.faults import BURST, LONG, OK, QUOTA, chat, error, tool
from fakes.openai_server import OpenAIServer
from fakes.provider_server import CLOSE, Answer, ProviderServer, http
from integration.test_provider_faults import check_paper

pytestmark = pytest.mark.docker
PROGRAM = Path(sys.executable).with_name("agent-harness")
KEY = "sk-planted-canary-0123456789abcdef"
NOTHING = http(chat(message={"content": None}))


@dataclass(frozen=True)
class Case:
    name: str
    script: tuple[Answer, ...]
    exit: int
    requests: int
    state: str
    settings: str = ""
    key: str = KEY


CASES = [
    Case("500, always", (error(500, "boom"),), 3, 3, "ready"),
    Case("401", (error(401, f"Incorrect API key provided: {KEY}", "invalid_api_key"),), 4, 1, "ready"),
    Case("no key set", (OK,), 4, 0, "ready", key=""),
    Case("429, quota used up", (error(429, *QUOTA),), 3, 1, "ready"),
    Case("429, Retry-After 1 hour", (error(429, *BURST, retry_after="3600"),), 3, 1, "ready"),
    Case("context too long", (error(400, LONG),), 6, 1, "exhausted"),
    Case("a redirect to elsewhere", (http(b"", 307, location="http://localhost:9/v1"),), 3, 1, "ready"),
    Case("closed in mid-body, always", ([OK[:-40], CLOSE],), 3, 3, "ready"),
    Case("closed in mid-body, $0.10 left", ([OK[:-40], CLOSE],), 6, 2, "exhausted", '[limits]\nusd = "0.10"\n'),
    Case("content_filter, always", (http(chat(choice={"finish_reason": "content_filter"})),), 1, 1, "failed"),
    Case("an empty reply, always", (NOTHING,), 1, 3, "failed"),
    Case("a call without a name, always", (http(chat(message={"tool_calls": [tool("", "a")]})),), 1, 3, "failed"),
]


@dataclass(frozen=True)
class Ran:
    exit: int
    outcome: str
    ended: str
    requests: int
    nanousd: int
    worst: list[int]
    item: dict
    began_ms: int
    printed: str


def run(case: Case, folder: Path) -> Ran:
    folder.mkdir()
    make_repository(folder)
    desk = Desk(folder)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "SCRIPTED_KEY": case.key, "TERM": "dumb"}

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )

    with ProviderServer(*case.script) as server:
        desk.server = cast("OpenAIServer", server)  # it has a base_url too
        desk.settings(case.settings, checks='[{ run = "true", kind = "command" }]')
        cli("queue", "add", "Splitting loses cents", "--id", "it")
        began = int(time.time() * 1000)
        done = cli("run", "--json")
        requests = len(server.requests)
    shown = json.loads(cli("queue", "show", "it", "--json").stdout)
    events = shown["events"]
    ended = [event["data"]["ended"] for event in events if event["kind"] == "role.ended"]
    asked = [event["data"]["worst"]["nanousd"] for event in events if event["kind"] == "model.asked"]
    reports = json.loads(done.stdout).get("runs", [])
    return Ran(
        done.returncode,
        reports[0]["outcome"] if reports else "not begun",
        ended[0] if ended else "",
        requests,
        json.loads(cli("audit", "cost", "it", "--json").stdout)["total"]["nanousd"],
        asked,
        shown["item"],
        began,
        done.stdout + done.stderr,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> dict[str, Ran]:
    folder = tmp_path_factory.mktemp("runs")
    with ThreadPoolExecutor(3) as pool:
        done = pool.map(lambda pair: run(pair[1], folder / f"case {pair[0]}"), enumerate(CASES))
        return dict(zip((case.name for case in CASES), done, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run(case, ran):
    seen = ran[case.name]
    assert (seen.exit, seen.requests, seen.item["state"]) == (case.exit, case.requests, case.state), seen.printed
    assert KEY not in seen.printed
    if case.state == "ready":  # given back, at no cost of an attempt
        assert (seen.item["failures"], seen.item["losses"]) == (0, 0)


def test_what_nobody_can_know_is_charged_at_its_worst(ran):
    cut = ran["closed in mid-body, always"]
    assert cut.nanousd == sum(cut.worst) > 0
    assert 0 < ran["closed in mid-body, $0.10 left"].nanousd <= 100_000_000


def test_an_item_is_not_taken_up_again_before_the_time_that_was_named(ran):
    seen = ran["429, Retry-After 1 hour"]
    assert 3_600_000 <= seen.item["not_before_ms"] - seen.began_ms < 3_900_000


def test_what_refused_one_item_is_not_asked_for_the_next(tmp_path):  # story S22
    folder = tmp_path / "project"
    folder.mkdir()
    make_repository(folder)
    desk = Desk(folder)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SCRIPTED_KEY": KEY, "TERM": "dumb"}
    with ProviderServer(error(429, *QUOTA)) as server:
        desk.server = cast("OpenAIServer", server)
        desk.settings(checks='[{ run = "true", kind = "command" }]')
        for words in (["queue", "add", "One"], ["queue", "add", "Two"], ["run", "--until-empty", "--json"]):
            done = subprocess.run([PROGRAM, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
        assert [one["exit"] for one in json.loads(done.stdout)["runs"]] == [3, 3], done.stderr
        assert len(server.requests) == 1


def test_the_paper_is_what_was_measured(ran):
    out = [
        "\nEach by `agent-harness run` on one item with one route, to the end.\n",
        "| fault | the role's run ended | outcome | requests | charged | exit code | the item is then |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seen in ran.items():
        worst = {sum(seen.worst): "worst", 0: "nothing"}
        charged = worst.get(seen.nanousd, "what was said") + (
            f" x {seen.requests}" if seen.nanousd and seen.requests > 1 else ""
        )
        later = ", not before the hour is over" if seen.item["not_before_ms"] - seen.began_ms > 3_500_000 else ""
        state = seen.item["state"] + later
        out.append(
            f"| {name} | {seen.ended or '-'} | {seen.outcome} | {seen.requests} | {charged} | {seen.exit} | {state} |"
        )
    check_paper(1, "\n".join(out) + "\n")
