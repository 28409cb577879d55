"""What each kind of value may be. Each function takes a TOML value, or `Raw` text of an environment variable or
flag, and returns the value the harness uses or raises ValueError with the words that stand after the key's name.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath
from typing import Any

from agent_harness.types import Check, CheckKind, Mount, endpoint

SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
USERINFO = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+@")
"""The user and password of a URL."""


class Raw(str):
    """Text of an environment variable or flag: it has no type of its own, the key's type reads it."""

    __slots__ = ()


def shown(value: object) -> str:
    """A wrong value for a message: short, on one line."""
    text = repr(str(value) if isinstance(value, Raw | Decimal) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def decimal(value: object) -> Decimal | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        found = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def whole(value: object) -> int:
    """A whole number above 0, at most 2**53."""
    if isinstance(value, Raw) or (isinstance(value, int) and not isinstance(value, bool)):
        found = decimal(str(value).replace("_", ""))
        if found is not None and found == found.to_integral_value() and 0 < found <= 1 << 53:
            return int(found)
    raise ValueError(f"must be a whole number above 0, not {shown(value)}")


def count(value: object) -> int:
    """A whole number from 0 on."""
    return 0 if str(value) == "0" else whole(value)


def number(value: object) -> float:
    """A number above 0 (TOML's own, or raw text)."""
    found = None if isinstance(value, str) and not isinstance(value, Raw) else decimal(value)
    if found is None or found <= 0 or not math.isfinite(float(found)):
        raise ValueError(f"must be a number above 0, not {shown(value)}")
    return float(found)


def usd(value: object) -> Decimal:
    """Dollars from 0 to a million, as a number or a decimal text; never rounded."""
    found = decimal(value)
    if found is None or not 0 <= found <= 1_000_000:
        raise ValueError(f'must be US dollars from 0 on, such as "2.50", not {shown(value)}')
    return found.normalize() + 0


def usd_ceiling(value: object) -> Decimal:
    """Dollars above 0, down to a nano-dollar."""
    found = decimal(value)
    if found is None or not Decimal("1e-9") <= found <= 1_000_000:
        raise ValueError(f'must be US dollars above 0, such as "2.50", not {shown(value)}')
    return found.normalize() + 0


def size(value: object) -> int:
    """Bytes: a whole number, or one with a unit of 1024: "512m", "2g"."""
    text = str(value).strip().lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"(\d{1,16}(?:\.\d{1,6})?)\s*([bkmgt]?)(?:i?b)?", text)
    found = int(Decimal(match[1]) * SIZES[match[2]]) if match else 0
    if not 0 < found <= 1 << 60:
        raise ValueError(f'must be a size above 0, such as "512m" or "2g", not {shown(value)}')
    return found


def flag(value: object) -> bool:
    """A truth value."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Raw) and value.lower() in {"true", "1", "yes", "on", "false", "0", "no", "off"}:
        return value.lower() in {"true", "1", "yes", "on"}
    raise ValueError(f"must be true or false, not {shown(value)}")


def text(value: object) -> str:
    """Text that is not empty and has no control characters (a tab may be)."""
    found = str(value).strip() if isinstance(value, str) else ""
    if not found or any(not c.isprintable() and c != "\t" for c in found):
        raise ValueError(f"must be a text of printable characters, not {shown(value)}")
    return found


def name(value: object) -> str:
    """A name of letters, digits, dots, dashes and underscores."""
    found = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", found):
        raise ValueError(f"must be a name of letters, digits, '.', '-' and '_', not {shown(value)}")
    return found


def variable(value: object) -> str:
    """The name of an environment variable. The message never repeats the value: it may be the key itself."""
    found = str(value) if isinstance(value, str) else ""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,127}", found):
        raise ValueError("must be the name of an environment variable (capitals, digits, '_'), never the key itself")
    return found


def web(value: object) -> str:
    """An http or https URL, with no place in it where a key could be."""
    found = text(value)
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", found):
        seen = re.split("[?#]", USERINFO.sub("", found))[0]
        raise ValueError(f"must be an http or https URL without user, query or fragment, not {shown(seen)}")
    return found.rstrip("/")


def database(value: object) -> str:
    """A database URL."""
    found = text(value)
    if not re.fullmatch(r"sqlite:///[^?]+|postgresql(\+psycopg)?://\S+", found):
        seen = shown(USERINFO.sub("", found))
        raise ValueError(f"must be sqlite:///PATH or postgresql+psycopg://HOST/NAME, not {seen}")
    return found


def endpoints(value: object) -> tuple[str, ...]:
    """Places of a network, each host and port."""
    for one in array(value):
        endpoint(text(one))
    return tuple(text(one) for one in array(value))


def gpus(value: object) -> str:
    """`all`, or how many."""
    return "all" if value == "all" else str(whole(Raw(value) if isinstance(value, str) else value))


def ports(value: object) -> tuple[int, ...]:
    """Ports of a service."""
    found = tuple(whole(one) for one in array(value))
    if any(one > 65535 for one in found):
        raise ValueError(f"must hold ports from 1 to 65535, not {shown(list(found))}")
    return found


def texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text(one) for one in array(value))


def variables(value: object) -> dict[str, str]:
    """Environment variables. Their values stand in the configuration, so they are no secrets."""
    if isinstance(value, dict):
        return {variable(key): text(one) for key, one in value.items()}
    raise ValueError(f'must be a table such as {{ NAME = "value" }}, not {shown(value)}')


def mounts(value: object) -> tuple[Mount, ...]:
    """Folders of this machine that are shown inside: tables of `source`, `target` and `read_only`."""
    found = []
    for one in array(value):
        if not isinstance(one, dict) or not {"source", "target"} <= set(one) <= {"source", "target", "read_only"}:
            raise ValueError('must hold tables such as {source = "/data", target = "/data", read_only = true}')
        found.append(Mount(text(one["source"]), text(one["target"]), flag(one.get("read_only", True))))
    return tuple(found)


def some_of(*allowed: str) -> Callable[[object], tuple[str, ...]]:
    """A list of some words."""
    return lambda value: tuple(one_of(*allowed)(one) for one in array(value))


def one_of(*allowed: str) -> Callable[[object], str]:
    """One of some words."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return str(value)
        raise ValueError(f"must be {' or '.join(map(shown, allowed))}, not {shown(value)}")

    return check


def array(value: object) -> list[Any]:
    """A list; raw text is read as TOML writes one."""
    found = value
    if isinstance(value, Raw):
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            found = tomllib.loads(f"v = {value}", parse_float=Decimal)["v"]
    if isinstance(found, list | tuple):
        return list(found)
    raise ValueError(f'must be a list such as ["a", "b"], not {shown(value)}')


def names(value: object) -> tuple[str, ...]:
    """A list of different names, not empty."""
    found = tuple(name(one) for one in array(value))
    if not found or len(set(found)) != len(found):
        raise ValueError(f"must be a list of different names, not {shown(list(found))}")
    return found


def globs(value: object) -> tuple[str, ...]:
    """Patterns of paths inside the repository."""
    found = tuple(text(one) for one in array(value))
    for one in found:
        if one.startswith("/") or ".." in PurePosixPath(one).parts:
            raise ValueError(f"must hold patterns relative to the repository, not {shown(one)}")
    return found


def checks(value: object) -> tuple[Check, ...]:
    """Commands: texts, or tables of `run`, `kind`, `timeout_s` and `no_worse`."""
    return tuple(check(one) for one in array(value))


def check(value: object) -> Check:
    """One command that judges a tree."""
    if isinstance(value, str):
        return Check(text(value))
    if not isinstance(value, dict) or "run" not in value:
        raise ValueError('must hold commands: texts, or tables such as {run = "make lint", kind = "command"}')
    unknown = sorted(set(value) - {"run", "kind", "timeout_s", "no_worse"})
    if unknown:
        raise ValueError(
            f"has a table with the unknown key {shown(unknown[0])}; known are run, kind, timeout_s and no_worse"
        )
    kind = CheckKind(one_of(*CheckKind)(value.get("kind", "tests")))
    return Check(text(value["run"]), kind, number(value.get("timeout_s", 600)), flag(value.get("no_worse", False)))
