"""What is written where: data on stdout, words for people on stderr, nothing to a reader that is gone.

There are no colours, so none can leak into a pipe. Control characters in texts that come from a model or a
repository are shown as escapes, so that they cannot steer a terminal.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from agent_harness.cli import signals
from agent_harness.errors import Exit, HarnessError
from agent_harness.types import Item, Limits, dollars

PROGRAM = "agent-harness"


def say(text: str) -> None:
    """A line for people, on stderr."""
    put(sys.stderr, clean(text))


def emit(data: object, as_json: bool, text: str) -> None:
    """A command's result on stdout: JSON, or its text (none where it is empty)."""
    if as_json:
        ascii_only = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "") != "utf8"
        put(sys.stdout, json.dumps(plain(data), indent=2, ensure_ascii=ascii_only))
    elif text:
        put(sys.stdout, clean(text))


def put(stream: TextIO | None, text: str) -> None:
    """Write a line. A closed stream is no error: whoever was to read it does not want to.

    Raises HarnessError where the stream is there but takes nothing (a full disk)."""
    if stream is None:
        return
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except (OSError, ValueError) as error:
        silence(stream)
        if isinstance(error, OSError):
            raise HarnessError(f"cannot write to {stream.name}", why=error.strerror or "") from error


def silence(stream: TextIO) -> None:
    """Let everything that is still to be written to a stream go nowhere, also at the interpreter's end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def clean(text: str) -> str:
    """Text whose only control characters are line ends and tabs."""
    return re.sub(r"[^\n\t]", lambda c: c[0] if c[0].isprintable() else ascii(c[0])[1:-1], text)


def line(text: str, width: int = 0) -> str:
    """Text on one line, cut to a width (0: not cut) with a mark where it was."""
    one = " ".join(text.split())
    return one if not width or len(one) <= width else one[: width - 1] + "…"


def plain(value: object) -> Any:
    """Nouns as JSON has them. Bytes are text where they are, and escapes where they are not. An interruption has the
    number of the signal that came, as the process has."""
    if value is Exit.INTERRUPTED:
        return signals.code() or int(Exit.INTERRUPTED)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return found | {"branch": value.branch} if isinstance(value, Item) else found
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, str | int | float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns, the head first; the last column is as long as it is. Nothing where there are no rows."""
    found = [[line(str(cell)) for cell in row] for row in rows]
    lines = [list(head), *found] if found else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def when(ms: int) -> str:
    """A time for people, UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def room(used: int) -> int:
    """Columns that are left on a line of the terminal; 160 where stdout is none, and 24 on a narrow one."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(24, shutil.get_terminal_size((160, 24)).columns - used) if terminal else 160


def write_whole(path: Path, text: str, *, over: bool) -> None:
    """Write a file whole or not at all, without following a link in its place; `over` one that is there. Raises
    OSError."""
    number, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(number)
        Path(name).chmod(0o644)
        if over:
            Path(name).replace(path)
        else:
            path.hardlink_to(name)
    finally:
        Path(name).unlink(missing_ok=True)


def bounds(limits: Limits) -> str:
    """Limits for people."""
    return f"{limits.steps} steps, {limits.tokens} tokens, {dollars(limits.nanousd)}, {limits.seconds:g} s"
