"""Putting items into the queue, inside a write transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, func, select

from agent_harness.audit import AuditLog
from agent_harness.errors import UsageError
from agent_harness.queue.drafts import check_cycles, new_id
from agent_harness.queue.rows import payload
from agent_harness.store.tables import DEPENDENCY, ITEM
from agent_harness.types import ItemState, NewItem
from agent_harness.types.kinds import Kind


def insert(tx: Connection, audit: AuditLog, drafts: Sequence[NewItem], now_ms: int) -> list[tuple[str, bool]]:
    """Store the drafts that are new; returns each one's id, and False where its key was known already."""
    placed: list[tuple[str, bool]] = []
    fresh: dict[str, NewItem] = {}
    keys: dict[str, str] = {}
    for draft in drafts:
        known = keys.get(draft.key or "") or _known(tx, draft.key)
        if known is None:
            known = _free_id(tx, draft.id, fresh)
            fresh[known] = replace(draft, id=known)
            keys |= {draft.key: known} if draft.key else {}
            placed.append((known, True))
        else:
            placed.append((known, False))
    states = _states(tx, fresh)
    check_cycles({item: draft.depends_on for item, draft in fresh.items()})
    for item, draft in fresh.items():
        waits = any(states.get(need) != ItemState.DONE for need in draft.depends_on)
        _insert_item(tx, draft, ItemState.BLOCKED if waits else ItemState.READY, now_ms)
        data = {"title": draft.title, "state": ItemState.BLOCKED if waits else ItemState.READY}
        audit.append(Kind.ITEM_QUEUED, data | ({"key": draft.key} if draft.key else {}), item=item, tx=tx)
    edges = [
        {"item": item, "needs": need, "ordinal": ordinal}
        for item, draft in fresh.items()
        for ordinal, need in enumerate(draft.depends_on)
    ]
    if edges:
        tx.execute(DEPENDENCY.insert(), edges)
    return placed


def _known(tx: Connection, key: str | None) -> str | None:
    if key is None:
        return None
    found: str | None = tx.execute(select(ITEM.c.id).where(ITEM.c.key == key)).scalar_one_or_none()
    return found


def _free_id(tx: Connection, wanted: str | None, fresh: dict[str, NewItem]) -> str:
    while True:
        item = wanted or new_id()
        taken = item in fresh or tx.execute(select(ITEM.c.id).where(ITEM.c.id == item)).first() is not None
        if not taken:
            return item
        if wanted:
            raise UsageError(f"the item {item} exists already", next="give it another id, or none")


def _states(tx: Connection, fresh: dict[str, NewItem]) -> dict[str, str]:
    """The states of what the new items depend on. Raises UsageError where there is no such item."""
    wanted = {need for draft in fresh.values() for need in draft.depends_on} - fresh.keys()
    rows = tx.execute(select(ITEM.c.id, ITEM.c.state).where(ITEM.c.id.in_(wanted))).all() if wanted else []
    states = {row.id: row.state for row in rows}
    for item, draft in fresh.items():
        for need in draft.depends_on:
            if need not in states and need not in fresh:
                raise UsageError(
                    f"the item {item} cannot depend on {need!r}",
                    why="there is no such item",
                    next="queue that one first, or see `agent-harness queue list`",
                )
    return states


def _insert_item(tx: Connection, draft: NewItem, state: ItemState, now_ms: int) -> None:
    position = tx.execute(select(func.coalesce(func.max(ITEM.c.position), 0) + 1)).scalar_one()
    tx.execute(
        ITEM.insert().values(
            id=draft.id,
            key=draft.key,
            payload=payload(draft),
            state=state.value,
            priority=draft.priority,
            position=position,
            not_before_ms=0,
            generation=0,
            token="",
            run="",
            worker="",
            expires_ms=0,
            failures=0,
            losses=0,
            reason="",
            feedback="",
            created_ms=now_ms,
            updated_ms=now_ms,
        )
    )
