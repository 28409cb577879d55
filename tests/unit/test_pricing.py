"""Prices: exact, rounded up, and unknown where unknown."""

import json
import random
from decimal import Decimal
from fractions import Fraction

import pytest
from pydantic import ValidationError

from agent_harness.config.shape import PriceSettings
from agent_harness.models.pricing import Price, PriceTable, cost, worst_cost
from agent_harness.types import NANO, Usage

SONNET = Price.of({"input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75"})


@pytest.mark.parametrize(
    ("usage", "nanousd"),
    [
        (Usage(), 0),
        (Usage(1_000_000, 0), 3 * NANO),
        (Usage(0, 1_000_000), 15 * NANO),
        (Usage(1000, 0, cache_read=900), 100 * 3000 + 900 * 300),  # field case 53: once, at the cache's rate
        (Usage(1000, 10, cache_read=700, cache_write=200), 100 * 3000 + 700 * 300 + 200 * 3750 + 10 * 15000),
        (Usage(100, 50, reasoning=40), 100 * 3000 + 50 * 15000),  # reasoning is part of the output
        (Usage(10, 0, cache_read=20), 20 * 300),  # a provider that counts the cache beside the input
    ],
)
def test_golden_usages(usage, nanousd):
    assert cost(usage, SONNET) == nanousd


def test_a_fraction_of_a_nano_dollar_is_rounded_up_once_per_call():
    thin = Price.of({"input": "0.0001", "output": "0.0003"})  # 0.1 and 0.3 nano-dollars per token
    assert cost(Usage(1, 0), thin) == 1
    assert cost(Usage(10, 0), thin) == 1
    assert cost(Usage(11, 1), thin) == 2


def test_without_cache_rates_the_input_rate_holds():
    plain = Price.of({"input": 2, "output": 0.5})
    assert cost(Usage(1000, 0, cache_read=500, cache_write=100), plain) == 1000 * 2000
    assert plain.as_json() == {"input": 2 * NANO, "output": NANO // 2, "cache_read": 2 * NANO, "cache_write": 2 * NANO}


def test_a_long_call_is_charged_by_its_tier_as_a_whole():
    tiered = Price.of({"input": "1", "output": "10", "long": {"from": 1000, "input": "2", "output": "15"}})
    assert cost(Usage(1000, 1), tiered) == 1000 * 1000 + 10_000
    assert cost(Usage(1001, 1), tiered) == 1001 * 2000 + 15_000


def test_no_call_within_its_bounds_costs_more_than_the_worst_case():
    dice = random.Random(7)
    money = lambda top: str(Decimal(dice.randrange(top)) / 1000)
    for _ in range(2000):
        usd = {key: money(30_000) for key in ("input", "output", "cache_read", "cache_write")}
        if dice.random() < 0.5:
            usd["long"] = {"from": dice.randrange(1000)} | {key: money(50_000) for key in ("input", "output")}
        price = Price.of(usd)
        top_in, top_out = dice.randrange(1, 2000), dice.randrange(1, 500)
        used = dice.randrange(top_in + 1)
        read = dice.randrange(used + 1)
        usage = Usage(used, dice.randrange(top_out + 1), read, dice.randrange(used - read + 1))
        assert cost(usage, price) <= worst_cost(top_in, top_out, price)
        exact = Fraction(cost(usage, price))
        assert 0 <= exact - _exact(usage, usd) < 1


def _exact(usage: Usage, usd: dict) -> Fraction:
    if "long" in usd and usage.input > usd["long"]["from"]:
        usd = usd["long"]
    rate = lambda key: Fraction(usd.get(key, usd["input"])) * NANO / 1_000_000
    fresh = usage.input - usage.cache_read - usage.cache_write
    cached = usage.cache_read * rate("cache_read") + usage.cache_write * rate("cache_write")
    return fresh * rate("input") + cached + usage.output * rate("output")


@pytest.mark.parametrize(
    "usd",
    [
        {},
        {"input": 1},
        {"input": 1, "output": 1, "cached": 1},
        {"input": -1, "output": 1},
        {"input": "cheap", "output": 1},
        {"input": float("nan"), "output": 1},
        {"input": float("inf"), "output": 1},
        {"input": True, "output": 1},
    ],
)
def test_a_price_that_is_none_is_refused_by_the_configuration(usd):
    with pytest.raises(ValidationError):
        PriceSettings(**usd)


def test_the_table_is_versioned_and_names_providers():
    table = PriceTable.load()
    assert table.digest.startswith("sha256:") and table.version
    assert len(table.prices) >= 40
    for name, price in table.prices.items():
        assert name.count("/") == 1
        assert 0 < price.cache_read <= price.input < price.output, name


def test_an_unknown_price_is_unknown():
    table = PriceTable.load()
    assert (
        table.find("openai/gpt-4o")
        == table.find("gpt-4o")
        == Price.of({"input": "2.5", "output": "10", "cache_read": "1.25"})
    )
    assert table.find("openai/gpt-9000") is None
    assert table.find("other/gpt-4o") is None
    assert table.find("") is None


def test_a_bare_name_that_two_providers_have_is_unknown():
    rows = {"a/m": {"input": 1, "output": 2}, "b/m": {"input": 3, "output": 4}}
    table = PriceTable.parse(json.dumps({"version": "1", "models": rows}).encode())
    assert table.find("m") is None
    assert table.find("b/m") == Price.of({"input": 3, "output": 4})
