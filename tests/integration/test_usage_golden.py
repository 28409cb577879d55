"""What providers say of usage, in their own JSON over real HTTP, and what that comes to: figures worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agent_harness.models.client import ModelClient, Route
from agent_harness.models.pricing import Price, PriceTable
from agent_harness.types import Limits, Message, ModelRequest, Spend, Usage
from agent_harness_adapters.litellm_transport import LitellmTransport
from fakes import provider_server as wire
from fakes.model import FakeBudget
from fakes.model_parts import FakeClock, ListRecorder
from fakes.provider_server import ProviderServer, Said, http

ASK = ModelRequest("implementer", (Message("system", "You fix."), Message("user", "Fix it.")), (), 500)
TABLE = PriceTable.load()


@dataclass(frozen=True)
class Golden:
    """A model, how its provider answers, its usage as it stands on the wire; our Usage, and nano-dollars."""

    model: str
    render: Any
    place: str
    told: dict[str, Any]
    usage: Usage
    nanousd: int
    path: str = "/v1"


GOLDEN = {
    # 86 fresh at 1.75, 1920 cached at 0.175, 300 out at 14 (128 of them reasoning)
    "openai chat": Golden(
        "openai/gpt-5.2",
        wire.openai,
        "usage",
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128, "accepted_prediction_tokens": 0},
        },
        Usage(2006, 300, cache_read=1920, reasoning=128),
        86 * 1750 + 1920 * 175 + 300 * 14_000,
    ),
    "openai responses": Golden(
        "openai/responses/gpt-5.2",
        wire.responses,
        "usage",
        {
            "input_tokens": 2006,
            "input_tokens_details": {"cached_tokens": 1920},
            "output_tokens": 300,
            "output_tokens_details": {"reasoning_tokens": 128},
            "total_tokens": 2306,
        },
        Usage(2006, 300, cache_read=1920, reasoning=128),
        4_686_500,
    ),
    # beside each other here: 50 fresh at 3, 18000 read at 0.3, 2000 written at 3.75, 503 out at 15
    "anthropic": Golden(
        "anthropic/claude-sonnet-4-5",
        wire.anthropic,
        "usage",
        {
            "input_tokens": 50,
            "cache_creation_input_tokens": 2000,
            "cache_read_input_tokens": 18_000,
            "cache_creation": {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 503,
            "service_tier": "standard",
        },
        Usage(20_050, 503, cache_read=18_000, cache_write=2000),
        20_595_000,
        "",
    ),
    # above 200,000 tokens all of it costs more: 50000 at 2.5, 200000 at 0.25, 1500 out (500 of them thoughts) at 15
    "gemini, long": Golden(
        "gemini/gemini-2.5-pro",
        wire.gemini,
        "usageMetadata",
        {
            "promptTokenCount": 250_000,
            "cachedContentTokenCount": 200_000,
            "candidatesTokenCount": 1000,
            "thoughtsTokenCount": 500,
            "totalTokenCount": 251_500,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 250_000}],
        },
        Usage(250_000, 1500, cache_read=200_000, reasoning=500),
        197_500_000,
        "/v1beta",
    ),
    # exactly 200,000 do not: 1.25, 0.125, 10
    "gemini, at the edge": Golden(
        "gemini/gemini-2.5-pro",
        wire.gemini,
        "usageMetadata",
        {"promptTokenCount": 200_000, "candidatesTokenCount": 10, "totalTokenCount": 200_010},
        Usage(200_000, 10),
        250_100_000,
        "/v1beta",
    ),
    # 104 fresh at 0.28, 896 hits at 0.028, 100 out at 0.42
    "deepseek": Golden(
        "deepseek/deepseek-chat",
        wire.openai,
        "usage",
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 896},
            "completion_tokens_details": {"reasoning_tokens": 40},
            "prompt_cache_hit_tokens": 896,
            "prompt_cache_miss_tokens": 104,
        },
        Usage(1000, 100, cache_read=896, reasoning=40),
        96_208,
    ),
    # this one counts reasoning beside the completion: 100 at 2, 300 cached at 0.3, 9 + 291 out at 6
    "xai": Golden(
        "xai/grok-4.5",
        wire.openai,
        "usage",
        {
            "prompt_tokens": 400,
            "completion_tokens": 9,
            "total_tokens": 700,
            "prompt_tokens_details": {"text_tokens": 400, "cached_tokens": 300},
            "completion_tokens_details": {"reasoning_tokens": 291},
        },
        Usage(400, 300, cache_read=300, reasoning=291),
        100 * 2000 + 300 * 300 + 300 * 6000,
    ),
    "mistral": Golden(
        "mistral/mistral-large-latest",
        wire.openai,
        "usage",
        {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050},
        Usage(1000, 50),
        1000 * 500 + 50 * 1500,
    ),
}


def answered(golden: Golden, monkeypatch: pytest.MonkeyPatch, **more: Any):
    """One call through client, litellm and HTTP: the reply, its event, and what the budget was charged."""
    monkeypatch.setenv("GOLDEN_KEY", "sk-golden-0123456789")
    body = golden.render(Said("Done."))
    body[golden.place] = golden.told | more
    price = TABLE.find(golden.model)
    with ProviderServer(http(body)) as server:
        route = Route("main", golden.model, server.root + golden.path, "GOLDEN_KEY", price, timeout_s=10.0)
        recorder, clock = ListRecorder(), FakeClock()
        budget = FakeBudget(Limits(9, 10**9, 10**15, 60.0), clock)
        client = ModelClient(
            [route],
            lambda one: LitellmTransport(model=one.model, base_url=one.base_url, api_key_env=one.api_key_env),
            recorder=recorder,
            clock=clock,
            prices=TABLE,
            redact=str,
        )
        reply = client.complete(ASK, budget)
    (event,) = recorder.of("model.answered")
    return reply, event, budget.spent()


@pytest.mark.parametrize("golden", list(GOLDEN.values()), ids=list(GOLDEN))
def test_usage_and_cost(golden, monkeypatch):
    reply, event, spent = answered(golden, monkeypatch)
    assert reply.usage == golden.usage
    assert event["nanousd"] == golden.nanousd
    assert spent == Spend(1, golden.usage.total, golden.nanousd)
    assert event["usage"]["cache_read"] == golden.usage.cache_read
    assert event["price"]["input"] == TABLE.find(golden.model).input


def test_what_the_provider_says_it_charged_wins(monkeypatch):
    golden = GOLDEN["openai chat"]
    _, event, spent = answered(golden, monkeypatch, cost=0.0123)
    assert (event["nanousd"], event["prices"], spent.nanousd) == (12_300_000, "provider", 12_300_000)


def test_the_digest_of_the_table_stands_in_the_record_of_what_it_priced():
    recorder, clock = ListRecorder(), FakeClock()
    from fakes.model_parts import ScriptedTransport, reply

    client = ModelClient(
        [Route("main", "openai/gpt-5.2")],
        lambda _: ScriptedTransport([reply(usage=Usage(2006, 300, cache_read=1920, reasoning=128))]),
        recorder=recorder,
        clock=clock,
        prices=TABLE,
        redact=str,
    )
    client.complete(ASK, FakeBudget(Limits(9, 10**9, 10**15, 60.0), clock))
    (event,) = recorder.of("model.answered")
    assert (event["prices"], event["nanousd"]) == (TABLE.digest, 4_686_500)
    assert event["price"] == Price.of({"input": "1.75", "output": "14", "cache_read": "0.175"}).as_json()
