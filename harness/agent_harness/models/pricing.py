"""What a call costs: exact integers, rounded up to a whole nano-dollar.

A price is the route's own (configuration), or the table's. An unknown price is None, never zero. The table names
`provider/model` and holds for the provider's own endpoint only: what another endpoint asks for a model of the same
name is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from agent_harness.types import NANO, Usage, digest

_MILLION = 1_000_000
_KEYS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Price:
    """Nano-dollars per million tokens. A call with more than `long_from` input tokens is charged by `long`, whole."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    long_from: int = 0
    long: Price | None = None

    @classmethod
    def of(cls, usd: Mapping[str, Any]) -> Price:
        """From US dollars per million tokens as the configuration or the table has them: `input`, `output`, and where
        they differ from `input` `cache_read` and `cache_write`, as numbers or decimal texts."""
        named = {key: Decimal(str(usd[key])) * NANO for key in _KEYS if usd.get(key) is not None}
        rates = {key: int(rate.to_integral_value(rounding="ROUND_CEILING")) for key, rate in named.items()}
        read, write = (rates.get(key, rates["input"]) for key in _KEYS[2:])
        price = cls(rates["input"], rates["output"], read, write)
        tier = usd.get("long")
        return replace(price, long_from=tier["from"], long=cls.of(tier)) if tier else price

    def as_json(self) -> dict[str, Any]:
        """The rates as plain data, for a call's record."""
        out: dict[str, Any] = {key: getattr(self, key) for key in _KEYS}
        if self.long is not None:
            out["long"] = {"from": self.long_from, **self.long.as_json()}
        return out

    def for_input(self, tokens: int) -> Price:
        """The tier of a call with so many input tokens."""
        return self.long if self.long is not None and tokens > self.long_from else self


def cost(usage: Usage, price: Price) -> int:
    """Nano-dollars of a call. Tokens read from or written to a cache are part of the input and charged once."""
    tier = price.for_input(usage.input)
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    total = (
        fresh * tier.input
        + usage.cache_read * tier.cache_read
        + usage.cache_write * tier.cache_write
        + usage.output * tier.output
    )
    return -(-total // _MILLION)


def worst_cost(input_tokens: int, output_tokens: int, price: Price) -> int:
    """The most that a call with at most so many tokens can cost, whatever is cached."""
    tiers = [price] if price.for_input(input_tokens) is price or price.long is None else [price, price.long]
    dearest = [(max(tier.input, tier.cache_read, tier.cache_write), tier.output) for tier in tiers]
    return -(-max(input_tokens * more + output_tokens * out for more, out in dearest) // _MILLION)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The versioned price file. `digest` goes into the record of each call it priced."""

    version: str
    digest: str
    prices: Mapping[str, Price]
    contexts: Mapping[str, int]
    """Input tokens that a model takes, where that is known."""

    @staticmethod
    @cache
    def load() -> PriceTable:
        """The table of this release."""
        return PriceTable.parse((files("agent_harness.models") / "prices.json").read_bytes())

    @staticmethod
    def parse(raw: bytes) -> PriceTable:
        """A table from its bytes."""
        data = json.loads(raw)
        contexts = {name: row["context"] for name, row in data["models"].items() if "context" in row}
        prices = {name: Price.of(row) for name, row in data["models"].items()}
        return PriceTable(data["version"], digest(raw), prices, contexts)

    def find(self, model: str) -> Price | None:
        """The price of `provider/model`, whichever of its wire formats; None where it is not known. A bare name is
        looked for under each provider and found only where exactly one has it."""
        model = model.replace("/responses/", "/", 1)
        if "/" in model:
            return self.prices.get(model)
        found = [price for name, price in self.prices.items() if name.split("/", 1)[1] == model]
        return found[0] if len(found) == 1 else None
