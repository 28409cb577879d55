"""Recomputes a log from its events: what was changed, removed or added afterwards shows."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from agent_harness.audit import merkle
from agent_harness.audit.entry import BODIES, CONTENT, event_of, sealed, unpack
from agent_harness.store.tables import BLOB, EVENT
from agent_harness.types import digest

_HASH = re.compile("[0-9a-f]{64}")


def problems(
    tx: Connection, head: tuple[int, Sequence[bytes]], checkpoints: Iterable[tuple[int, str]] = ()
) -> list[str]:
    """All that does not hold, in the log's order; empty when everything does."""
    found: list[str] = []
    size, peaks = head
    known = dict(checkpoints)
    grown: list[bytes] = []
    named: dict[str, int] = {}
    count = 0
    for row in tx.execute(select(EVENT).order_by(EVENT.c.seq)).yield_per(1000):
        if row.seq != count + 1:
            found.append(f"event {row.seq}: number {count + 1} is expected here")
        found += _event(row, named)
        grown = merkle.grow(grown, count, bytes.fromhex(row.leaf) if _HASH.fullmatch(str(row.leaf)) else merkle.EMPTY)
        count += 1
        if count in known and merkle.bag(grown).hex() != known.pop(count):
            found.append(f"the root over the first {count} events is not the one that was known")
    if count != size:
        found.append(f"the head counts {size} events, there are {count}")
    elif grown != list(peaks):
        found.append("the root of the head is not the root of the events")
    found += [f"a log of {known_size} events was known, there are {count}" for known_size in known]
    return found + _bodies(tx, named)


def _event(row: Any, named: dict[str, int]) -> list[str]:
    """What is wrong with one event; the digests of its bodies are noted in `named`."""
    try:
        event = event_of(row)
        as_written = sealed(event) == event
    except (ValueError, TypeError, RecursionError) as error:
        return [f"event {row.seq}: it cannot be read: {error}"]
    for name in event.data.get(BODIES, ()):
        named.setdefault(str(event.data.get(name)), event.seq)
    return [] if as_written else [f"event {row.seq}: it is not what was written"]


def _bodies(tx: Connection, named: dict[str, int]) -> list[str]:
    found = []
    for row in tx.execute(select(BLOB.c.digest, BLOB.c.size, CONTENT)).yield_per(100):
        seq = named.pop(row.digest, None)
        where = f"the body {row.digest}" + (f" of event {seq}" if seq else "")
        try:
            body = unpack(row.content)
        except ValueError:
            found.append(f"{where} cannot be read")
            continue
        if digest(body) != row.digest or len(body) != row.size:
            found.append(f"{where} is not what was written")
    return found + [f"the body {key} of event {seq} is missing" for key, seq in named.items()]
