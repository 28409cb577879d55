"""`config`: what is in force, and where it comes from."""

import json
from typing import Annotated, Any

import typer

from agent_harness.cli.opening import Db, Json, Sets, configured, group
from agent_harness.cli.output import emit

app = group("Show the configuration.")
Origin = Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")]


@app.command()
def show(*, origin: Origin = False, sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Print the effective configuration as TOML. Keys of models are never part of it."""
    loaded = configured(sets, db, used=False)
    found = list(loaded.config.leaves())
    lines = []
    for key, value in found:
        text = f"# {key} is not set" if value is None else f"{key} = {toml(value)}"
        lines.append(f"{text}  # {loaded.config.origin(key)}" if origin else text)
    values = {key: {"value": value, "origin": loaded.config.origin(key)} if origin else value for key, value in found}
    data = {"root": loaded.root, "file": loaded.file, "digest": loaded.config.digest, "values": values}
    emit(data, as_json, "\n".join(lines))


def toml(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
