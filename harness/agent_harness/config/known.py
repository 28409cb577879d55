"""Which keys exist, and what to say about one that does not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, get_args

from agent_harness.config.shape import Config, Section, dotted
from agent_harness.config.values import name
from agent_harness.errors import ConfigError

Path_: TypeAlias = tuple[str, ...]

KEY_WORD = re.compile(
    r"(^|[_-])(api[_-]?key|key|token|password|passwd|secret|credentials?|authorization)$", re.IGNORECASE
)
"""Names that a credential would be given."""


def spelled(key: Path_) -> str:
    """A key's dotted name."""
    text = ""
    for part in key:
        text = dotted(text, part)
    return text


def below(model: type[Section], field: str) -> tuple[type[Section] | None, bool]:
    """The table model of a field, and whether the user names the tables in it. (None, False) for a plain value."""
    info = model.model_fields.get(field)
    if info is None:
        return None, False
    for one in (info.annotation, *get_args(info.annotation)):
        if isinstance(one, type) and issubclass(one, Section):
            return one, get_args(info.annotation)[:1] == (str,)
    return None, False


def tables(key: Path_) -> bool:
    """Whether a key is a table of the configuration."""
    model: type[Section] | None = Config
    named = False
    for part in key:
        if named:
            named = False
        elif model is not None:
            model, named = below(model, part)
        if model is None:
            return False
    return True


def refuse_unknown(data: Mapping[str, Any], where: str) -> None:
    """Raises ConfigError at the first key that no section has, naming the nearest that there is."""
    walk(data, Config, (), where)


def walk(data: Mapping[str, Any], model: type[Section], above: Path_, where: str) -> None:
    """One table."""
    for field, value in data.items():
        key = (*above, field)
        if field not in model.model_fields:
            refuse(key, model, where)
        inner, named = below(model, field)
        if inner is None or not isinstance(value, dict):
            continue
        for part, table in named_tables(value, key, where) if named else [(key, value)]:
            if isinstance(table, dict):
                walk(table, inner, part, where)


def named_tables(value: Mapping[str, Any], key: Path_, where: str) -> list[tuple[Path_, Any]]:
    """The tables that a user named, each name one that can stand in a log and in a variable."""
    for each in value:
        try:
            name(each)
        except ValueError as error:
            raise ConfigError(f"{where}: a name in [{spelled(key)}] {error}") from None
    return [((*key, each), one) for each, one in value.items()]


def refuse(key: Path_, model: type[Section], where: str) -> None:
    """Raises the ConfigError of one unknown key. Its value is never repeated: it may be a secret."""
    if KEY_WORD.search(key[-1]):
        raise ConfigError(
            f"{where}: {spelled(key)} is refused",
            why="keys are never in the configuration",
            next='put the key into an environment variable and name it: api_key_env = "NAME" in [routes.<name>]',
        )
    raise ConfigError(f"{where}: unknown key {spelled(key)}", next=f"did you mean {nearest(key, model)}?")


def nearest(key: Path_, model: type[Section]) -> str:
    """The known key that is most like an unknown one: a sibling, or the same name in another section."""
    everything = list(known(Config, ()))
    same = [one for one in everything if one[-1] == key[-1]]
    if same:
        return spelled(same[0])
    siblings = difflib.get_close_matches(key[-1], model.model_fields, n=1, cutoff=0.6)
    if siblings:
        return spelled((*key[:-1], siblings[0]))
    texts = [spelled(one) for one in everything]
    return difflib.get_close_matches(spelled(key), texts, n=1, cutoff=0.0)[0]


def known(model: type[Section], above: Path_) -> Iterator[Path_]:
    """Every key there is, tables included; `NAME` stands for the user's own names."""
    for field in model.model_fields:
        yield (*above, field)
        inner, named = below(model, field)
        if inner is not None:
            yield from known(inner, (*above, field, *(("NAME",) if named else ())))
