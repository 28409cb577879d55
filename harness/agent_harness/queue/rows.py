"""Items as rows and back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Column, Connection, select

from agent_harness.store.tables import ANSWER, DEPENDENCY, ITEM, WANTED
from agent_harness.types import Allowance, Check, CheckKind, Deliverable, Item, ItemState, Limits, NewItem, canonical

_FIXED = ("title", "brief", "checks", "limits", "base", "allow", "allow_paths", "deliverable")
_COPIED = {field.name for field in fields(Item)}.intersection(ITEM.columns.keys()) - {"state", "reason"}


def payload(new: NewItem) -> str:
    """What of an item never changes, as JSON."""
    whole = asdict(new)
    return canonical({name: whole[name] for name in _FIXED})


def load(tx: Connection, rows: Iterable[Any]) -> list[Item]:
    """The items of these rows. A blocked one's reason names what it waits for now."""
    rows = list(rows)
    needs, missing = defaultdict(list), defaultdict(list)
    query = (
        select(DEPENDENCY.c.item, DEPENDENCY.c.needs, ITEM.c.state)
        .join(ITEM, ITEM.c.id == DEPENDENCY.c.needs)
        .order_by(DEPENDENCY.c.ordinal)
    )
    wanted = select(WANTED.c.item, WANTED.c.key).order_by(WANTED.c.ordinal)

    def of(query: Any, item: Column[Any]) -> Iterable[Any]:
        return tx.execute(query.where(item == rows[0].id) if len(rows) == 1 else query)

    for item, need, state in of(query, DEPENDENCY.c.item):
        needs[item].append((need, state))
    for item, key in of(wanted, WANTED.c.item):
        missing[item].append(key)
    answers = {row.item: row.digest for row in of(select(ANSWER), ANSWER.c.item)}
    return [_item(row, needs[row.id], missing[row.id], answers.get(row.id, "")) for row in rows]


def _item(row: Any, needs: list[tuple[str, str]], missing: list[str], answer: str) -> Item:
    fixed = json.loads(row.payload)
    reason = row.reason
    if row.state == ItemState.BLOCKED:
        open_ones = [f"{need} ({state})" for need, state in needs if state != ItemState.DONE]
        reason = "waits for " + ", ".join([*open_ones, *(f"{key} (not queued)" for key in missing)])
    return Item(
        state=ItemState(row.state),
        checks=None if fixed["checks"] is None else tuple(_check(check) for check in fixed["checks"]),
        limits=Limits(**fixed["limits"]) if fixed["limits"] else None,
        depends_on=tuple(need for need, _ in needs),
        allow=tuple(Allowance(name) for name in fixed["allow"]),
        allow_paths=tuple(fixed["allow_paths"]),
        reason=reason,
        deliverable=Deliverable(fixed.get("deliverable", Deliverable.CHANGE)),
        missing=tuple(missing),
        answer=answer,
        **{name: fixed[name] for name in ("title", "brief", "base")},
        **{name: getattr(row, name) for name in _COPIED},
    )


def _check(data: dict[str, Any]) -> Check:
    return Check(data["command"], CheckKind(data["kind"]), data["timeout_s"], data.get("no_worse", False))
