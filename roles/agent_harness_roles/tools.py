"""The tools a role may use: how a model is told of them, and whether its arguments are what was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_harness.types import JSON, Role, ToolSpec
from agent_harness_roles.observe import clean, is_clean

_PROBLEMS_SHOWN = 3
_PROBLEM_LENGTH = 300

BASH = ToolSpec(
    "bash",
    "Run a bash script from /workspace, each time in a new shell (`cd` and variables do not last), without terminal "
    "and stdin. You get the exit code and the output (both streams, cut in the middle when long).",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout_s": {"type": "number", "exclusiveMinimum": 0},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)
EDIT = ToolSpec(
    "edit",
    "Change a file, or create one; better than sed or heredocs. Each `old` must stand in the file exactly once, "
    "character for character (include enough lines around it); `edits` are applied in order, all or none. "
    "For a new file give `content` instead.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "relative to /workspace"},
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string", "minLength": 1}, "new": {"type": "string"}},
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
            "content": {"type": "string"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)
_SUBMIT = "End the run with your result, when you are finished. Call it alone. Nothing else ends the run."


class Toolbox:
    """A role's tools and their argument checks."""

    def __init__(self, role: Role) -> None:
        from jsonschema import Draft202012Validator  # late: a tenth of a second that only a run needs

        known = {"bash": BASH, "edit": EDIT, "submit": ToolSpec("submit", _SUBMIT, role.schema)}
        self.specs = tuple(known[name] for name in role.tools)
        self._validators = {spec.name: Draft202012Validator(spec.parameters) for spec in self.specs}

    def parse(self, name: str, text: str) -> tuple[dict[str, Any] | None, str]:
        """The arguments a model wrote for a tool, or None and what is wrong with them (for the model)."""
        if name not in self._validators:
            return None, f"there is no tool {clean(name)[:40]!r}; the tools are: {', '.join(self._validators)}"
        try:
            value = _tidy(json.loads(text, strict=False, parse_constant=_no_number))
        except (ValueError, RecursionError) as fault:
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
    read = _read(text)
    if value is None:
        tidy = _tidy(read) if isinstance(read, dict) else None
        value = tidy if tidy is not None else {"malformed_arguments": clean(text)}
    return text if is_clean(text) and read == value else json.dumps(value)


def _read(text: str) -> Any:
    """What a provider would read, None when it could not."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error.path)
    return (f"{where}: " if where else "") + str(error.message)[:_PROBLEM_LENGTH]


def _tidy(value: Any) -> Any:
    """The value with lone surrogates replaced: no text with one can be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_tidy(key): _tidy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_tidy(inner) for inner in value]
    return value
