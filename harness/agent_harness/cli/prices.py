"""`prices`: what a model costs, and where that is known from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_harness.cli.opening import Json, Sets, configured, group
from agent_harness.cli.output import emit, table

if TYPE_CHECKING:
    from agent_harness.models.pricing import Price

app = group("Say what models cost.")


@app.command()
def check(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="provider/model, or the name of a configured route.")],
    *,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Print a model's price and where it is known from. Exit 2 where it is not known."""
    from dataclasses import replace

    from agent_harness.models.pricing import PriceTable
    from agent_harness.models.routes import Rate, Route

    config, prices = configured(sets, None).config, PriceTable.load()
    named = {name: one for name, one in config.routes.items() if model in {name, one.model}}
    route = Route.configured(*next(iter(named.items()))) if named else Route("NAME", model)
    rate = Rate.of(replace(route, allow_unpriced=False), prices)
    if (price := rate.price) is None:
        raise AssertionError  # what is not allowed to be unpriced has a price
    source = f"routes.{route.name}.price" if rate.source == "route" else f"price table {prices.version} ({rate.source})"
    tiers = [("every call", price)] if price.long is None else [
        (f"up to {price.long_from} tokens of input", price), ("above that, the whole call", price.long)
    ]  # fmt: skip
    rows = [(name, *usd(tier).values()) for name, tier in tiers]
    bought = {key: config.limits.limits.nanousd * 1_000_000 // rate for key, rate in rates(price).items() if rate}
    buys = ", ".join(f"{count} of {key.replace('_', ' ')}" for key, count in bought.items())
    context = prices.contexts.get(route.model)
    lines = [
        f"{route.model}: {source}",
        table(("USD PER MILLION TOKENS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"), rows),
        f"context: {f'{context} tokens' if context else 'not known'}",
        f"limits.usd = {config.limits.usd} buys one of these, in tokens: {buys}",
    ]
    data = {
        "model": route.model,
        "source": rate.source,
        "table": {"version": prices.version, "digest": prices.digest},
        "usd_per_million": usd(price),
        "long": {"from": price.long_from, "usd_per_million": usd(price.long)} if price.long else None,
        "context": context,
        "limit_usd": str(config.limits.usd),
        "limit_buys_tokens": bought,
    }
    emit(data, as_json, "\n".join(lines))


def rates(price: Price) -> dict[str, int]:
    """Its rates in nano-dollars, as configuration names them."""
    return {key: rate for key, rate in price.as_json().items() if key != "long"}


def usd(price: Price) -> dict[str, Any]:
    """Its rates in dollars, as decimal texts."""
    from decimal import Decimal

    from agent_harness.types import NANO

    return {key: f"{(Decimal(rate) / NANO).normalize():f}" for key, rate in rates(price).items()}
