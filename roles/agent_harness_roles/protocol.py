"""The tools over plain text, for model routes without tool calls: one fenced block per call.

Prompt and parser come from the same table: each tool's fence is its name, and a tool with one text of its own
(`RAW`) takes the block as that text; every other block is JSON.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_harness.types import JSON, ToolSpec, canonical
from agent_harness_roles.tools import TOLD

RAW = {"bash": "command"}
_FENCE = re.compile(r"(`{3,}+)[ \t]*+([^`\s]*+)[^`]*+")
"""Possessive: a line of any length is looked at once."""


class Block(NamedTuple):
    """One call found in a reply: the tool's name and its arguments as JSON text. `problem` when it is not closed."""

    name: str
    arguments: str
    problem: str = ""


def prompt(tools: Sequence[ToolSpec]) -> str:
    """The part of the system prompt that teaches the blocks, with an example of each."""
    parts = [TOLD["protocol"]["head"]]
    for tool in tools:
        parts.append(f"\nTool {tool.name}: {tool.description}\n")
        if tool.name not in RAW:
            parts.append(f"JSON of this schema: {canonical(tool.parameters)}\n")
        sample = f"```{tool.name}\n{canonical(_sample(tool.parameters))}\n```\n"
        parts.append(TOLD[tool.name].get("example", sample))
    return "".join(parts)


def parse(text: str, tools: Sequence[ToolSpec]) -> list[Block]:
    """The blocks of a reply that call a tool, in order. Other fenced blocks are passed over whole."""
    names = {tool.name for tool in tools}
    blocks: list[Block] = []
    fence, name, body = "", "", list[str]()
    for line in text.split("\n"):
        opening = _FENCE.fullmatch(line)
        if not fence:
            if opening:
                fence, name, body = opening[1], opening[2], []
        elif opening and not opening[2] and len(opening[1]) >= len(fence):
            if name in names:
                script = "\n".join(body)
                blocks.append(Block(name, json.dumps({RAW[name]: script}) if name in RAW else script))
            fence = ""
        else:
            body.append(line)
    if fence and name in names:
        blocks.append(Block(name, "{}", f"the {name} block is not closed with {fence}; send it again, whole"))
    return blocks


def _sample(schema: JSON) -> Any:
    """The shape of what is required. It names no choice, and does not fit as it stands: small models send it back."""
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "object":
        return {name: _sample(schema["properties"][name]) for name in schema.get("required", ())}
    return {"array": [], "boolean": True, "integer": 1, "number": 1}.get(schema.get("type", ""), "...")
