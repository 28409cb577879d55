"""What each kind of value may be. Each function takes a TOML value, or `Raw` text of an environment variable or
flag, and returns the value the harness uses or raises ValueError with the words that stand after the key's name.
"""

import math
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath
from typing import Any, TypeVar

from agent_harness.types import Check, CheckKind, Mount, endpoint

T = TypeVar("T")
SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SWITCHES: dict[str, bool] = {"true": True, "1": True, "yes": True, "on": True}
SWITCHES |= {"false": False, "0": False, "no": False, "off": False}
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


def usd(least: str, told: str) -> Callable[[object], Decimal]:
    """Dollars up to a million, as a number or a decimal text; never rounded."""

    def check(value: object) -> Decimal:
        found = decimal(value)
        if found is None or not Decimal(least) <= found <= 1_000_000:
            raise ValueError(f'must be US dollars {told}, such as "2.50", not {shown(value)}')
        return found.normalize() + 0

    return check


usd_price, usd_ceiling = usd("0", "from 0 on"), usd("1e-9", "above 0")


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
    if isinstance(value, Raw) and value.lower() in SWITCHES:
        return SWITCHES[value.lower()]
    raise ValueError(f"must be true or false, not {shown(value)}")


def text(value: object) -> str:
    """Text that is not empty and has no control characters (a tab may be)."""
    found = str(value).strip() if isinstance(value, str) else ""
    if not found or any(not c.isprintable() and c != "\t" for c in found):
        raise ValueError(f"must be a text of printable characters, not {shown(value)}")
    return found


def matching(pattern: str, told: str) -> Callable[[object], str]:
    """A text that a pattern describes. A wrong one is told without what could be a password in it."""

    def check(value: object) -> str:
        found = text(value)
        if not re.fullmatch(pattern, found):
            raise ValueError(f"must be {told}, not {shown(USERINFO.sub('', found))}")
        return found

    return check


name = matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "a name of letters, digits, '.', '-' and '_'")
database = matching(r"sqlite:///[^?]+|postgresql(\+psycopg)?://\S+", "sqlite:///PATH or postgresql+psycopg://HOST/NAME")


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


def place(value: object) -> str:
    """A place of a network, host and port."""
    endpoint(text(value))
    return text(value)


def gpus(value: object) -> str:
    """`all`, or how many."""
    return "all" if value == "all" else str(whole(Raw(value) if isinstance(value, str) else value))


def port(value: object) -> int:
    """A port of a service."""
    if (found := whole(value)) > 65535:
        raise ValueError(f"must hold ports from 1 to 65535, not {found}")
    return found


def variables(value: object) -> dict[str, str]:
    """Environment variables. Their values stand in the configuration, so they are no secrets."""
    if isinstance(value, dict):
        return {variable(key): text(one) for key, one in value.items()}
    raise ValueError(f'must be a table such as {{ NAME = "value" }}, not {shown(value)}')


def mount(value: object) -> Mount:
    """A folder of this machine that is shown inside: a table of `source`, `target` and `read_only`."""
    if not isinstance(value, dict) or not {"source", "target"} <= set(value) <= {"source", "target", "read_only"}:
        raise ValueError('must hold tables such as {source = "/data", target = "/data", read_only = true}')
    return Mount(text(value["source"]), text(value["target"]), flag(value.get("read_only", True)))


def each(kind: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """A list of one kind of value."""
    return lambda value: tuple(map(kind, array(value)))


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
    found = each(name)(value)
    if not found or len(set(found)) != len(found):
        raise ValueError(f"must be a list of different names, not {shown(list(found))}")
    return found


def glob(value: object) -> str:
    """A pattern of paths inside the repository."""
    found = text(value)
    if found.startswith("/") or ".." in PurePosixPath(found).parts:
        raise ValueError(f"must hold patterns relative to the repository, not {shown(found)}")
    return found


def check(value: object) -> Check:
    """A command that judges a tree: a text, or a table of `run`, `kind`, `timeout_s` and `no_worse`."""
    if isinstance(value, str):
        return Check(text(value))
    if not isinstance(value, dict) or "run" not in value:
        raise ValueError('must hold commands: texts, or tables such as {run = "make lint", kind = "command"}')
    if unknown := sorted(set(value) - {"run", "kind", "timeout_s", "no_worse"}):
        known = "run, kind, timeout_s and no_worse"
        raise ValueError(f"has a table with the unknown key {shown(unknown[0])}; known are {known}")
    kind = CheckKind(one_of(*CheckKind)(value.get("kind", "tests")))
    return Check(text(value["run"]), kind, number(value.get("timeout_s", 600)), flag(value.get("no_worse", False)))
