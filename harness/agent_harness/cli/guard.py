"""`guard`: what the command guard sees in a command."""

from typing import Annotated

import typer

from agent_harness.cli.opening import Json, Sets, configured
from agent_harness.cli.output import emit, table
from agent_harness.errors import Exit

Line = Annotated[str, typer.Argument(metavar="COMMAND", help="As a role would give it to bash; in quotes.")]


def guard(command: Line, *, sets: Sets = None, as_json: Json = False) -> int:
    """Say which rules would refuse a command. It is not run. Exit 0: allowed, 1: refused."""
    from agent_harness.guard import Guard, Policy

    settings = configured(sets, None, used=False).config.guard
    found = Guard(Policy(settings.rules, settings.allow)).screen(command)
    refused = {refusal.program: refusal for refusal in found.refused}
    rules = [refused[one].rule if one in refused else "-" for one in found.programs]
    rows = [(rule, "{}-{}".format(*one.at), one.shown) for rule, one in zip(rules, found.programs, strict=True)]
    parts = [table(("RULE", "AT", "PROGRAM"), rows) or "no program was found"]
    parts += [f"note: {note}" for note in found.notes]
    parts += [found.text or ("allowed" if settings.enabled else "allowed: the guard is off (guard.enabled)")]
    data = {
        "allowed": not found.refused,
        "enabled": settings.enabled,
        "programs": [{"words": one.words, "shown": one.shown, "at": one.at} for one in found.programs],
        "refused": found.refused,
        "notes": found.notes,
    }
    emit(data, as_json, "\n".join(parts))
    return Exit.FAILED if found.refused else Exit.OK
