"""Where values come from: files, environment variables and flags, each a layer of leaves with its origin."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent_harness.config.known import Path_, spelled, tables
from agent_harness.config.values import USERINFO, Raw
from agent_harness.errors import ConfigError

PREFIX = "AGENT_HARNESS_"
TABLE = "agent-harness"
FILE_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value as it was given, and where."""

    value: Any
    origin: str


Leaves = dict[Path_, Leaf]
Reader = Callable[[Path], bytes | None]
"""A file's bytes, None where there is none."""


@dataclass(frozen=True, slots=True)
class Found:
    """The project's folder, and its configuration file where it has one."""

    root: Path
    file: Path | None = None
    data: Mapping[str, Any] | None = None


def read_file(path: Path) -> bytes | None:
    """A configuration file of this machine. Raises ConfigError where it is there but cannot be read."""
    try:
        if not path.exists():
            return None
        with path.open("rb") as file:
            raw = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {near(path)}", why=error.strerror or "", next="make it a readable file"
        ) from error
    if len(raw) > FILE_LIMIT:
        raise ConfigError(f"cannot read {near(path)}", why=f"it is larger than {FILE_LIMIT} bytes")
    return raw


def parse(raw: bytes, path: Path) -> dict[str, Any]:
    """TOML, its fractions as decimals. Raises ConfigError with file, line and column."""
    where, text = near(path), ""
    try:
        text = raw.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{where}:{line}:{column}: not TOML", why="a byte that is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        why = str(error)
        at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", why)
        lines = text.split("\n")
        line, column = (int(at[1]), int(at[2])) if at and at[1] else (len(lines), len(lines[-1]) + 1)
        raise ConfigError(f"{where}:{line}:{column}: not TOML", why=why[: at.start()] if at else why) from None
    except RecursionError:
        raise ConfigError(f"{where}:1:1: not TOML that can be read", why="it is nested too deeply") from None


def near(path: Path) -> str:
    """A path for people: relative where it is below the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def find_project(start: Path, read: Reader = read_file) -> Found:
    """The nearest configuration from `start` up to the git root; without one, the git root or `start`.

    Outside a git repository only `start` is looked at: a folder above may be anybody's."""
    folders = [start, *start.parents]
    top = next((folder for folder in folders if (folder / ".git").exists()), start)
    looked = (project_in(folder, read) for folder in folders[: folders.index(top) + 1])
    return next(filter(None, looked), Found(top))


def project_in(folder: Path, read: Reader) -> Found | None:
    """The configuration of one folder."""
    own, shared = folder / "harness.toml", folder / "pyproject.toml"
    raw = read(own)
    table = pyproject(shared, read)
    if raw is not None and table is not None:
        both = f"two configurations: {near(own)} and [tool.{TABLE}] in {near(shared)}"
        raise ConfigError(both, next="keep one of them")
    if raw is not None:
        return Found(folder, own, parse(raw, own))
    return Found(folder, shared, table) if table is not None else None


def pyproject(path: Path, read: Reader) -> dict[str, Any] | None:
    """The harness's table in a pyproject.toml; a file that does not mention it may be as broken as it likes."""
    raw = read(path)
    if raw is None or TABLE.encode() not in raw:
        return None
    tool = parse(raw, path).get("tool")
    table = tool.get(TABLE) if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{near(path)}: tool.{TABLE} must be a table")
    return table


def user_folder(env: Mapping[str, str], name: str, usual: str) -> Path | None:
    """The user's own folder for the harness, which need not exist: below what the variable `name` says, or in home."""
    base = env.get(name, "")
    if not os.path.isabs(base):  # noqa: PTH117 - the specification's own word: a relative one is ignored
        home = env.get("HOME", "")
        base = f"{home}/{usual}" if home else ""
    return Path(base) / TABLE if base else None


def file_leaves(data: Mapping[str, Any], path: Path) -> Leaves:
    """The leaves of a file. Raises ConfigError on passwords in URLs."""
    origin = near(path)
    found = {key: Leaf(value, origin) for key, value in flat(data, ())}
    for key, leaf in found.items():
        if isinstance(leaf.value, str) and USERINFO.search(leaf.value):
            raise ConfigError(
                f"{origin}: {spelled(key)} holds a password",
                next=f"take it out; set {variable_of(key)} in the environment, or use the client's own key store",
            )
    return found


def flat(data: Mapping[str, Any], above: Path_) -> Iterator[tuple[Path_, Any]]:
    """The leaves of nested tables; a table where the configuration knows none is a (wrong) leaf."""
    for name, value in data.items():
        key = (*above, name)
        if isinstance(value, dict) and value and tables(key):
            yield from flat(value, key)
        else:
            yield key, value


def env_leaves(env: Mapping[str, str], known: Leaves) -> Leaves:
    """The leaves of `AGENT_HARNESS_<SECTION>__<KEY>`. An empty variable is as good as none."""
    found: Leaves = {}
    for name in sorted(env):
        if not name.startswith(PREFIX) or not env[name].strip():
            continue
        parts = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if len(parts) == 1:
            refuse_single(name, parts[0])
            continue
        found[same_but_for_case(parts, known)] = Leaf(Raw(env[name]), f"environment variable {name}")
    return found


def refuse_single(name: str, rest: str) -> None:
    """A variable with one underscore where two belong would be ignored in silence. Others are not ours to judge."""
    section, _, key = rest.partition("_")
    if key and tables((section,)):
        raise ConfigError(
            f"environment variable {name} is no key", next=f"write {PREFIX}{section.upper()}__{key.upper()}"
        )


def same_but_for_case(parts: Path_, known: Leaves) -> Path_:
    """The name of a route or role as the files spell it: a variable's name has only capitals and underscores."""
    same = (key[:2] for key in known if len(parts) > 2 and variable_of(key[:2]) == variable_of(parts[:2]))
    return (*next(same, parts[:2]), *parts[2:])


def variable_of(key: Path_) -> str:
    """The environment variable of a key."""
    return PREFIX + "__".join(re.sub(r"\W|-", "_", part) for part in key).upper()


def flag_leaves(sets: Sequence[str], db: str | None) -> Leaves:
    """The leaves of `--set KEY=VALUE` and `--db URL`."""
    found: Leaves = {}
    for one in sets:
        name, equals, value = one.partition("=")
        key = dotted_key(name)
        if not equals or key is None:
            raise ConfigError(
                f"--set {name.strip() or one!r} is not KEY=VALUE", next="write it as in --set limits.usd=2.50"
            )
        found[key] = Leaf(Raw(value), "--set")
    if db is not None:
        found["state", "db"] = Leaf(Raw(db), "--db")
    return found


def dotted_key(text: str) -> Path_ | None:
    """The parts of a dotted key, as TOML reads one."""
    if "\n" in text or "#" in text or len(text) > 500:
        return None
    try:
        value: Any = tomllib.loads(f"{text} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    parts: list[str] = []
    while isinstance(value, dict):
        ((name, value),) = value.items()
        parts.append(name)
    return tuple(parts) or None


def nested(leaves: Mapping[Path_, Leaf]) -> dict[str, Any]:
    """The leaves as tables again. A scalar that stands where a table is needed stays, for the model to refuse."""
    data: dict[str, Any] = {}
    for key, leaf in leaves.items():
        table: Any = data
        for part in key[:-1]:
            table = table.setdefault(part, {}) if isinstance(table, dict) else table
        if isinstance(table, dict):
            table.setdefault(key[-1], dict(leaf.value) if isinstance(leaf.value, dict) else leaf.value)
    return data
