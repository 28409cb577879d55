"""Items as rows and back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, select

from agent_harness.store.tables import DEPENDENCY, ITEM
from agent_harness.types import Allowance, Check, CheckKind, Item, ItemState, Limits, NewItem, canonical


def payload(new: NewItem) -> str:
    """What of an item never changes, as JSON."""
    return canonical(
        {
            "title": new.title,
            "brief": new.brief,
            "checks": None if new.checks is None else [asdict(check) for check in new.checks],
            "limits": asdict(new.limits) if new.limits else None,
            "base": new.base,
            "allow": list(new.allow),
            "allow_paths": list(new.allow_paths),
        }
    )


def load(tx: Connection, rows: Iterable[Any]) -> list[Item]:
    """The items of these rows. A blocked one's reason names what it waits for now."""
    rows = list(rows)
    needs = defaultdict(list)
    query = (
        select(DEPENDENCY.c.item, DEPENDENCY.c.needs, ITEM.c.state)
        .join(ITEM, ITEM.c.id == DEPENDENCY.c.needs)
        .order_by(DEPENDENCY.c.ordinal)
    )
    if len(rows) == 1:
        query = query.where(DEPENDENCY.c.item == rows[0].id)
    for item, need, state in tx.execute(query):
        needs[item].append((need, state))
    return [_item(row, needs[row.id]) for row in rows]


def _item(row: Any, needs: list[tuple[str, str]]) -> Item:
    fixed = json.loads(row.payload)
    reason = row.reason
    if row.state == ItemState.BLOCKED:
        reason = "waits for " + ", ".join(f"{need} ({state})" for need, state in needs if state != ItemState.DONE)
    return Item(
        id=row.id,
        title=fixed["title"],
        brief=fixed["brief"],
        state=ItemState(row.state),
        checks=None if fixed["checks"] is None else tuple(_check(check) for check in fixed["checks"]),
        limits=Limits(**fixed["limits"]) if fixed["limits"] else None,
        depends_on=tuple(need for need, _ in needs),
        priority=row.priority,
        key=row.key,
        base=fixed["base"],
        allow=tuple(Allowance(name) for name in fixed["allow"]),
        allow_paths=tuple(fixed["allow_paths"]),
        generation=row.generation,
        failures=row.failures,
        losses=row.losses,
        not_before_ms=row.not_before_ms,
        reason=reason,
        feedback=row.feedback,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
    )


def _check(data: dict[str, Any]) -> Check:
    return Check(data["command"], CheckKind(data["kind"]), data["timeout_s"])
