"""The tools a role may use: how a model is told of them, and whether its arguments are what was asked for."""

import json
import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from agent_harness.types import JSON, Role, ToolSpec
from agent_harness.types.text import clean, is_clean

_PROBLEMS_SHOWN = 3
_PROBLEM_LENGTH = 300
_DEEPEST = 50
"""Levels of a call's JSON: several times what any tool asks for, and less than what any reader of it gives up at."""

TOLD = tomllib.loads((files("agent_harness_roles") / "tools.toml").read_text(encoding="utf-8"))
"""What a model is told of the tools, by name: description, parameters, an example where calls are plain text."""


class Toolbox:
    """A role's tools and their argument checks."""

    def __init__(self, role: Role) -> None:
        from jsonschema import Draft202012Validator  # late: a tenth of a second that only a run needs

        told = ((name, TOLD[name]) for name in role.tools)
        self.specs = tuple(ToolSpec(name, it["description"], it.get("parameters", role.schema)) for name, it in told)
        self._validators = {spec.name: Draft202012Validator(spec.parameters) for spec in self.specs}

    def parse(self, name: str, text: str) -> tuple[dict[str, Any] | None, str]:
        """The arguments a model wrote for a tool, or None and what is wrong with them (for the model)."""
        if name not in self._validators:
            return None, f"there is no tool {clean(name)[:40]!r}; the tools are: {', '.join(self._validators)}"
        try:
            value = _tidy(_load(text, strict=False))
        except ValueError as fault:
            return None, f"the arguments of {name} are not valid JSON ({fault}); send the whole call again"
        if not isinstance(value, dict):
            return None, f"the arguments of {name} must be a JSON object"
        problems = self._problems(name, value)
        return (None, f"the arguments of {name} do not fit: {problems}") if problems else (value, "")

    def _problems(self, name: str, value: Mapping[str, Any]) -> str:
        if name == "bash" and "\0" in str(value.get("command", "")):
            return "command: holds a NUL character"
        if name == "edit" and ("edits" in value) == ("content" in value):
            return "give either `edits` or `content`"
        found = sorted(self._validators[name].iter_errors(value), key=lambda error: list(map(str, error.path)))
        return "; ".join(_told(error) for error in found[:_PROBLEMS_SHOWN])


def kept(text: str, value: JSON | None) -> str:
    """The arguments as the history keeps them: the model's own text, or, where a provider could not read that
    (broken JSON, control characters), the same content as valid JSON."""
    try:
        read = _load(text)
    except ValueError:
        read = None
    if value is None:
        value = _tidy(read) if isinstance(read, dict) else {"malformed_arguments": clean(text)}
    return text if is_clean(text) and read == value else json.dumps(value)


def _load(text: str, *, strict: bool = True) -> Any:
    """JSON that every provider could read again. Raises ValueError."""
    try:
        value = json.loads(text, strict=strict, parse_constant=_number, parse_float=_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [inner for part in level for inner in part]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error.path)
    return (f"{where}: " if where else "") + str(error.message)[:_PROBLEM_LENGTH]


def _tidy(value: Any) -> Any:
    """The value with lone surrogates replaced: no text with one can be encoded."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
