"""Text, digests and money: what every other noun is written with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

NANO = 1_000_000_000
"""Nano-dollars in one US dollar."""

JSON = Mapping[str, Any]
"""Plain data as JSON has it; read-only by convention."""


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, UTF-8 kept. Digests are made of it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(data: bytes | str) -> str:
    """`sha256:` and the hex digest of bytes (text is taken as UTF-8, lone surrogates replaced)."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def dollars(nanousd: int) -> str:
    """Money for people: `$0.0123`; four decimals, rounded up so that a cost never shows as less than it was."""
    return f"${-(-nanousd // 100_000) / 10_000:.4f}"
