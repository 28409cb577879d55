"""What a person queues: checked, then put into the queue inside a write transaction."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sqlalchemy import Connection, func, select

from agent_harness.audit import AuditLog
from agent_harness.errors import UsageError
from agent_harness.queue.rows import payload
from agent_harness.store.tables import DEPENDENCY, ITEM, WANTED
from agent_harness.types import ItemState, NewItem
from agent_harness.types.kinds import Kind

IMPORTED = "imported as done"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no letter that reads as another
_MAX_PRIORITY = 1_000_000


def insert(
    tx: Connection, audit: AuditLog, drafts: Sequence[NewItem], now_ms: int
) -> tuple[list[tuple[str, bool]], list[str]]:
    """Store the drafts that are new; returns each one's id, and False where its key was known already; and the ids of
    items that had waited for one of them to be queued."""
    placed: list[tuple[str, bool]] = []
    fresh: dict[str, NewItem] = {}
    keys: dict[str, str] = {}
    for draft in drafts:
        known = keys.get(draft.key or "") or _known(tx, draft.key)
        item = known or _free_id(tx, draft.id, fresh)
        placed.append((item, known is None))
        if known is None:
            fresh[item] = replace(draft, id=item)
            keys |= {draft.key: item} if draft.key else {}
    fresh = {item: _keyed(tx, draft, keys) for item, draft in fresh.items()}
    states = _states(tx, fresh) | {item: ItemState.DONE for item, draft in fresh.items() if draft.done}
    old = tx.execute(select(WANTED).where(WANTED.c.key.in_(keys))).all() if keys else []  # what waited for the new ones
    waiters = [{"item": row.item, "needs": keys[row.key], "ordinal": row.ordinal} for row in old]
    _check_cycles(tx, fresh, waiters)
    edges, wanted = list(waiters), list[dict[str, Any]]()
    for item, draft in fresh.items():
        waits = draft.needs or any(states.get(need) != ItemState.DONE for need in draft.depends_on)
        state = ItemState.DONE if draft.done else ItemState.BLOCKED if waits else ItemState.READY
        _insert_item(tx, draft, state, now_ms)
        data = {"title": draft.title, "state": state}
        audit.append(Kind.ITEM_QUEUED, data | ({"key": draft.key} if draft.key else {}), item=item, tx=tx)
        edges += [{"item": item, "needs": need, "ordinal": n} for n, need in enumerate(draft.depends_on)]
        wanted += [{"item": item, "key": key, "ordinal": n} for n, key in enumerate(draft.needs, len(draft.depends_on))]
    for table, rows in (DEPENDENCY, edges), (WANTED, wanted):
        if rows:
            tx.execute(table.insert(), rows)
    if waiters:
        tx.execute(WANTED.delete().where(WANTED.c.key.in_(keys)))
    return placed, [edge["item"] for edge in waiters]


def _keyed(tx: Connection, draft: NewItem, keys: dict[str, str]) -> NewItem:
    """The draft with each key it needs turned into the id of the item that has it, where there is one."""
    found = {key: keys.get(key) or _known(tx, key) for key in draft.needs}
    ids = dict.fromkeys([*draft.depends_on, *(item for item in found.values() if item)])
    return replace(draft, depends_on=tuple(ids), needs=tuple(key for key, item in found.items() if not item))


def _check_cycles(tx: Connection, fresh: dict[str, NewItem], waiters: list[dict[str, Any]]) -> None:
    """Old items matter only where one of them waits for a new one: before that nothing leads from old to new."""
    needs = {item: list(draft.depends_on) for item, draft in fresh.items()}
    if waiters:
        edges = [(row.item, row.needs) for row in tx.execute(select(DEPENDENCY))]
        for item, need in edges + [(one["item"], one["needs"]) for one in waiters]:
            needs.setdefault(item, []).append(need)
    check_cycles(needs)


def _known(tx: Connection, key: str | None) -> str | None:
    if key is None:
        return None
    return tx.execute(select(ITEM.c.id).where(ITEM.c.key == key)).scalar_one_or_none()


def _free_id(tx: Connection, wanted: str | None, fresh: dict[str, NewItem]) -> str:
    while True:
        item = wanted or "".join(secrets.choice(_ALPHABET) for _ in range(6))
        if item not in fresh and tx.execute(select(ITEM.c.id).where(ITEM.c.id == item)).first() is None:
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
                how = "queue that one first, or see `agent-harness queue list`"
                raise UsageError(f"the item {item} cannot depend on {need!r}", why="there is no such item", next=how)
    return states


def _insert_item(tx: Connection, draft: NewItem, state: ItemState, now_ms: int) -> None:
    position = tx.execute(select(func.coalesce(func.max(ITEM.c.position), 0) + 1)).scalar_one()
    row: dict[str, Any] = dict.fromkeys(("not_before_ms", "generation", "expires_ms", "failures", "losses"), 0)
    row |= dict.fromkeys(("token", "run", "worker", "feedback"), "")
    row |= {"id": draft.id, "key": draft.key, "payload": payload(draft), "state": state.value, "position": position}
    row |= {"priority": draft.priority, "reason": IMPORTED if draft.done else ""}
    tx.execute(ITEM.insert(), row | {"created_ms": now_ms, "updated_ms": now_ms})


def clean(new: NewItem, redact: Callable[[str], str]) -> NewItem:
    """The item as it may be stored: no secret in its text. Raises UsageError."""
    if new.id is not None:
        check_id(new.id)
    if not new.title.strip():
        raise UsageError("an item needs a title")
    if abs(new.priority) > _MAX_PRIORITY:
        raise UsageError(f"the priority {new.priority} is out of range", why=f"it goes to {_MAX_PRIORITY} either way")
    commands = [check.command for check in new.checks or ()]
    for text in (*commands, *new.allow_paths, *new.depends_on, *new.needs, new.key or "", new.base or "", new.id or ""):
        if redact(text) != text:  # these are used as they are: a redacted command would fail, and nobody knew why
            how = "leave it out: checks run without any of the harness's keys"
            raise UsageError(f"a secret stands in {redact(text)!r}", next=how)
    return replace(
        new,
        title=plain(redact(" ".join(new.title.split()))),
        brief=plain(redact(new.brief)),
        depends_on=tuple(dict.fromkeys(new.depends_on)),
        needs=tuple(dict.fromkeys(new.needs)),
    )


def plain(text: str) -> str:
    """The text as any database and any request can hold it: no NUL, no lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def check_id(item: str) -> None:
    """Raise UsageError for an id that cannot be the last part of a branch's name."""
    if not _ID.fullmatch(item) or ".." in item or item.endswith((".", ".lock")):
        how = "use 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, without `..`, a last `.` or `.lock`"
        raise UsageError(f"{item!r} cannot be an item's id", why="an id becomes part of a branch's name", next=how)


def check_cycles(needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError, with the path, when items wait for each other. `needs` maps an id to what it depends on."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        what = f"items would wait for each other: {path}"
        raise UsageError(what, next="leave one of these dependencies out") from None
