"""`prices check`, and what the doors that take a recording say of a bad one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_harness.demo import RECORDING
from agent_harness.models.pricing import PriceTable

PROGRAM = Path(sys.executable).with_name("agent-harness")
HEADER = '{"format":"agent-harness recording","version":1}\n'


@pytest.fixture
def cli(tmp_path):
    def call(*words, code=0):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(
            [PROGRAM, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return call


def test_a_known_model_is_shown_with_its_tiers_and_what_the_ceiling_buys(cli):
    out, _ = cli("prices", "check", "openai/gpt-5.4", "--set", "limits.usd=10")
    table = PriceTable.load()
    first, head, low, high, context, buys = out.splitlines()
    assert first == f"openai/gpt-5.4: price table {table.version} ({table.digest})"
    assert head.split() == ["USD", "PER", "MILLION", "TOKENS", "INPUT", "OUTPUT", "CACHE", "READ", "CACHE", "WRITE"]
    assert low.split()[-4:] == ["2.5", "15", "0.25", "2.5"] and "272000" in low
    assert high.split()[-4:] == ["5", "22.5", "0.5", "5"] and "whole call" in high
    assert "1050000" in context
    assert "limits.usd = 10" in buys and "4000000 of input, 666666 of output, 40000000 of cache read" in buys


def test_as_json(cli):
    data = json.loads(cli("prices", "check", "anthropic/claude-sonnet-4-5", "--json")[0])
    assert data["usd_per_million"] == {"input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75"}
    assert (data["long"], data["context"], data["source"]) == (None, 200_000, data["table"]["digest"])
    assert data["limit_buys_tokens"]["output"] == 333_333
    assert json.loads(cli("prices", "check", "xai/grok-4.5", "--json")[0])["long"]["from"] == 200_000


def test_a_configured_route_by_its_name_or_model(cli, tmp_path):
    (tmp_path / "harness.toml").write_text(
        '[routes.mine]\nmodel = "openai/qwen"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'price = { input = "0.25", output = "2.00" }\n[routes.free]\nmodel = "openai/free"\nallow_unpriced = true\n'
    )
    for name in ("mine", "openai/qwen"):
        out, _ = cli("prices", "check", name)
        assert out.startswith("openai/qwen: routes.mine.price\n") and "context: not known" in out
        assert out.splitlines()[2].split() == ["every", "call", "0.25", "2", "0.25", "0.25"]
    _, err = cli("prices", "check", "free", code=2)
    assert "route free: the price of openai/free is not known" in err


@pytest.mark.parametrize("model", ["openai/gpt-9000", "nobody/knows", "qwen"])
def test_an_unknown_price_is_one_line_with_what_to_write(cli, model):
    out, err = cli("prices", "check", model, code=2)
    assert out == "" and len(err.splitlines()) == 1
    assert f"the price of {model} is not known" in err
    assert "set routes.NAME.price = {input = ..., output = ...} in US dollars per million tokens" in err
    assert ("openai/gpt-5" in err) is (model == "openai/gpt-9000")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no call"),
        (HEADER, "holds no call"),
        (RECORDING.read_text()[:5000], "the line is cut off"),
        (HEADER.replace("1", "9"), "it is of version 9, and this program reads version 1"),
        ('{"format":"other","version":1}\n', "it is no agent-harness recording"),
        ("binary \0\n", "line 1 of the recording"),
    ],
)
def test_a_recording_that_cannot_be_replayed_is_one_line_before_anything_else(cli, tmp_path, text, words):
    (tmp_path / "r.jsonl").write_text(text)
    out, err = cli("run", "--replay", "r.jsonl", code=2)
    assert out == "" and len(err.splitlines()) == 1
    assert words in err and "r.jsonl" in err and "Next: record the run again" in err
    _, err = cli("run", "--record", "r.jsonl", code=5 if text in {"", HEADER} else 2)
    assert len(err.splitlines()) == 1


def test_both_at_once_and_what_is_not_there_are_refused(cli, tmp_path):
    (tmp_path / "b").write_text("")
    assert "exclude each other" in cli("run", "--record", "a", "--replay", "b", code=2)[1]
    assert "does not exist" in cli("run", "--replay", "nowhere", code=2)[1]
    assert "there is no folder no" in cli("run", "--record", "no/r.jsonl", code=2)[1]
