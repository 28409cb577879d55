"""What a person queues, checked before it is stored."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from agent_harness.errors import UsageError
from agent_harness.types import NewItem

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no letter that reads as another
_MAX_PRIORITY = 1_000_000


def clean(new: NewItem, redact: Callable[[str], str]) -> NewItem:
    """The item as it may be stored: no secret in its text. Raises UsageError."""
    if new.id is not None:
        check_id(new.id)
    if not new.title.strip():
        raise UsageError("an item needs a title")
    if abs(new.priority) > _MAX_PRIORITY:
        raise UsageError(f"the priority {new.priority} is out of range", why=f"it goes to {_MAX_PRIORITY} either way")
    commands = [check.command for check in new.checks or ()]
    for text in (*commands, *new.allow_paths, *new.depends_on, *new.needs, new.key or "", new.base or "", new.id or ""):
        if redact(text) != text:  # these are used as they are: a redacted command would fail, and nobody knew why
            raise UsageError(
                f"a secret stands in {redact(text)!r}",
                next="leave it out: checks run without any of the harness's keys",
            )
    return replace(
        new,
        title=plain(redact(" ".join(new.title.split()))),
        brief=plain(redact(new.brief)),
        depends_on=tuple(dict.fromkeys(new.depends_on)),
        needs=tuple(dict.fromkeys(new.needs)),
    )


def plain(text: str) -> str:
    """The text as any database and any request can hold it: no NUL, no lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def check_id(item: str) -> None:
    """Raise UsageError for an id that cannot be the last part of a branch's name."""
    if not _ID.fullmatch(item) or ".." in item or item.endswith((".", ".lock")):
        raise UsageError(
            f"{item!r} cannot be an item's id",
            why="an id becomes part of a branch's name",
            next="use 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, without `..`, a last `.` or `.lock`",
        )


def new_id() -> str:
    """A short random id."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(6))


def check_cycles(needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError, with the path, when items wait for each other. `needs` maps an id to what it depends on."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        what = f"items would wait for each other: {path}"
        raise UsageError(what, next="leave one of these dependencies out") from None
