"""An event as bytes: what is hashed, and what is kept."""

import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import type_coerce
from sqlalchemy.types import NullType

from agent_harness.audit.merkle import leaf_hash
from agent_harness.errors import AuditError
from agent_harness.redact import scrub
from agent_harness.store.tables import BLOB
from agent_harness.types import JSON, Event, canonical, digest

BODIES = "bodies"
"""The key of an event's data that names those keys whose values are digests of stored bodies."""

CONTENT = type_coerce(BLOB.c.content, NullType())
"""What is stored of a body, as it is: whoever changed it may have written another type."""


def sealed(event: Event) -> Event:
    """The event with its RFC 6962 leaf hash, in hexadecimal: of its canonical JSON without the leaf."""
    entry = {field.name: getattr(event, field.name) for field in fields(event) if field.name != "leaf"}
    return replace(event, leaf=leaf_hash(canonical(entry).encode()).hex())


def row_of(event: Event) -> dict[str, Any]:
    """An event as its row."""
    return {field.name: getattr(event, field.name) for field in fields(event)} | {"data": canonical(event.data)}


def event_of(row: Any) -> Event:
    """An event from its row. Raises ValueError when its data is no JSON."""
    return Event(row.seq, row.at_ms, row.kind, row.item, row.run, _parse(row.data), row.leaf)


def clean_data(data: JSON, redact: Callable[[str], str]) -> dict[str, Any]:
    """The data without secrets. Raises AuditError when a value is not JSON."""
    clean: dict[str, Any] = scrub(data, redact)
    _check(clean, "data")
    return clean


def clean_body(body: str | bytes, redact: Callable[[str], str]) -> bytes:
    """The body's bytes without secrets; bytes that are not UTF-8 stay as they are."""
    if isinstance(body, str):
        return redact(body).encode("utf-8", "replace")
    return redact(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def pack(bodies: Mapping[str, bytes]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The digest of each body by name, and the rows to store."""
    digests = {name: digest(body) for name, body in bodies.items()}
    contents = {digests[name]: body for name, body in bodies.items()}
    rows = [{"digest": key, "size": len(raw), "content": zlib.compress(raw, 3)} for key, raw in contents.items()]
    return digests, rows


def unpack(content: bytes) -> bytes:
    """A stored body. Raises ValueError when it cannot be read."""
    try:
        return zlib.decompress(content)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error


def _parse(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("the data is no JSON object")  # noqa: TRY004 - one kind of error for damaged rows
    return data


def _check(value: object, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            _check(inner, f"{where}[]")
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        raise AuditError(f"an event cannot be written: {where} is no JSON", why=f"it is a {type(value).__name__}")
