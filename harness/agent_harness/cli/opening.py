"""What the commands share: their common options, and the way from the current folder to an opened project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agent_harness.cli.output import put
from agent_harness.errors import UsageError

if TYPE_CHECKING:
    from agent_harness.app import App
    from agent_harness.config import Loaded

opt = typer.Option
Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None
KEY_VALUE = "Set a configuration key, such as limits.usd=2.50. Repeatable."
Json: TypeAlias = Annotated[bool, opt("--json", help="Print the result as JSON on stdout.")]
Sets: TypeAlias = Annotated[Texts, opt("--set", metavar="KEY=VALUE", help=KEY_VALUE)]
Db: TypeAlias = Annotated[Text, opt("--db", metavar="URL", help="Database instead of the project's own SQLite file.")]

TEXT_LIMIT = 256 << 10
"""Bytes of a brief: it goes into prompts."""


def print_help(context: typer.Context, wanted: bool) -> None:
    """Print a group's help, and end."""
    if wanted:
        put(sys.stdout, context.get_help())
        raise typer.Exit(0)


Help: TypeAlias = Annotated[
    bool, typer.Option("--help", is_eager=True, callback=print_help, help="Show this message and exit.")
]
"""For groups. Typer's own `--help` there makes it import pydantic for every command that is below one."""


def alone(*, wanted: Help = False) -> None:
    """What a group does by itself: nothing."""
    del wanted


def group(help: str, epilog: str = "") -> typer.Typer:
    """A command group. No rich, no completion: plain help, quickly. A callback of its own takes `Help`, too."""
    return typer.Typer(
        help=help,
        callback=alone,
        epilog=epilog or None,
        add_completion=False,
        add_help_option=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def here() -> Path:
    """The current folder. Raises UsageError where it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", next="change to the project's folder") from None


def configured(sets: list[str] | None, db: str | None, *, used: bool = True) -> Loaded:
    """The effective configuration around the current folder. Raises ConfigError, also where it is to be `used` and
    takes from this machine what nobody here allowed."""
    from agent_harness.config import load, trust

    loaded = load(here(), sets=sets or (), db=db)
    if used:
        trust.need(loaded)
    return loaded


@contextmanager
def opened(
    sets: list[str] | None, db: str | None, *, record: Path | None = None, replay: Path | None = None
) -> Iterator[App]:
    """The project around the current folder, opened. Raises ConfigError, UsageError (no git repository), StoreFault."""
    from agent_harness.app import App

    loaded = configured(sets, db)
    need_repository(loaded.config.source(loaded.root))
    with App(loaded.config, loaded.root, record=record, replay=replay) as app:
        yield app


def need_repository(source: str) -> None:
    """Raises UsageError where a source that is a path is no git repository. URLs are for git to try."""
    folder = Path(source)
    if not folder.is_absolute():
        return
    bare = (folder / "objects").is_dir() and (folder / "HEAD").is_file()
    if not bare and not (folder / ".git").exists():
        raise UsageError(
            f"{source} is not a git repository",
            next="run this inside one, or set project.source in harness.toml to its path or URL",
        )


def readable(text: str, what: str, *, lines: bool = False) -> str:
    """A text given by a person. Raises UsageError where it is no text, empty, or has control characters."""
    wrong = [c for c in text if not c.isprintable() and not (lines and c in "\n\t\r")]
    if wrong:
        raise UsageError(f"{what} is not a printable text", why=f"it holds {wrong[0]!a}")
    if not text.strip():
        raise UsageError(f"{what} is empty")
    return text.strip()


def text_from(path: str, what: str, limit: int = TEXT_LIMIT) -> str:
    """A text from a file, or from stdin for `-`: the only case in which stdin is read. Raises UsageError."""
    if path == "-" and sys.stdin is None:
        raise UsageError(f"{what} was to come from stdin, which is closed")
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            raw = file.read(limit + 1)
        text = raw.decode()
    except OSError as error:
        raise UsageError(f"cannot read {what} from {path}", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {what} from {path}", why="it is not UTF-8 text") from None
    if len(raw) > limit:
        raise UsageError(f"{what} in {path} is longer than {limit} bytes", next="say it shorter, or point to a file")
    return text
