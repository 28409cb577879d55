#!/usr/bin/env python3
"""Bring the price table up to the price map that the installed litellm carries. `scripts/prices.py [PROVIDER/MODEL...]`

Models named are added. Where that map is older than the one the table was made from, rows that are there keep their
prices, and only what they lack (a context size) is filled in; rows that the map does not know stay as they are.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from decimal import Decimal
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "harness/agent_harness/models/prices.json"
RATES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}


def usd(facts: dict[str, Any], end: str = "") -> dict[str, str]:
    """Rates in US dollars per million tokens, those that are named."""
    found = {key: facts.get(name + end) for key, name in RATES.items()}
    return {key: f"{(Decimal(str(rate)) * 1_000_000).normalize():f}" for key, rate in found.items() if rate}


def row(facts: dict[str, Any]) -> dict[str, Any]:
    """A row of the table. A map with several tiers is refused: a price here has two."""
    out: dict[str, Any] = usd(facts)
    tiers = sorted(
        {found[1] for key in facts if (found := re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key))}
    )
    if len(tiers) > 1:
        raise SystemExit(f"more than one tier: {tiers}")
    for tier in tiers:
        out["long"] = {"from": 1000 * int(tier), **usd(facts, f"_above_{tier}k_tokens")}
    if facts.get("max_input_tokens"):
        out["context"] = int(facts["max_input_tokens"])
    return out


def known(prices: dict[str, Any], model: str) -> dict[str, Any] | None:
    """What the map says of a provider's model: some it lists by the bare name."""
    provider, _, bare = model.partition("/")
    facts = prices.get(model) or prices.get(bare)
    return facts if facts and facts["litellm_provider"] == provider else None


def numbers(text: str) -> list[int]:
    """A version as numbers."""
    return [int(one) for one in re.findall(r"\d+", text)]


def main(names: list[str]) -> int:
    """Write the table anew."""
    table = json.loads(TABLE.read_text())
    spec = find_spec("litellm")  # its place; to import it would ask the network for another map
    if spec is None or spec.origin is None:
        raise SystemExit("litellm is not installed here")
    prices = json.loads(Path(spec.origin).with_name("model_prices_and_context_window_backup.json").read_text())
    here, there = numbers(version("litellm")), numbers(table["source"])
    for name in [*table["models"], *names]:
        facts = known(prices, name)
        if facts is None:
            print(f"{name} is not in the map; left as it is", file=sys.stderr)
        elif name not in table["models"] or here >= there:
            table["models"][name] = row(facts)
        elif "context" in (fresh := row(facts)):
            table["models"][name]["context"] = fresh["context"]
    source = f"the price map bundled with litellm {version('litellm')}"
    table |= {"source": source} if here >= there else {"filled_in_from": source}
    table["version"] = dt.datetime.now(dt.UTC).date().isoformat()
    rows = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(table['models'][name])}" for name in sorted(table["models"])
    )
    head = "".join(f"  {json.dumps(key)}: {json.dumps(table[key])},\n" for key in table if key != "models")
    TABLE.write_text(f'{{\n{head}  "models": {{\n{rows}\n  }}\n}}\n')
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
