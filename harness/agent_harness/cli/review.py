"""`review`: judge a diff without a queue, as a gate in CI does."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agent_harness.cli import signals
from agent_harness.cli.events import Progress
from agent_harness.cli.opening import Db, Json, Sets, Text, Texts, here, need_repository, opt, text_from
from agent_harness.cli.output import bounds, emit, put, say, write_whole
from agent_harness.cli.run import Record, Replay, code, uncommitted
from agent_harness.errors import Exit, HarnessError, UsageError
from agent_harness.types import ReviewReport, dollars

if TYPE_CHECKING:
    from agent_harness.config import Loaded
    from agent_harness.git import Git
    from agent_harness.passes import ReviewPlan

SINKS = "agent_harness.sink"
FORMATS = "text, json, markdown, sarif, github, gitlab or junit; to stdout, or to a file. Repeatable."
Out = tuple[str, Path | None]
"""A format, and the file it goes to: None is stdout."""


PATCH = opt(metavar="FILE", exists=True, dir_okay=False, help="A patch of the base, instead of --head.")
Severity = StrEnum("Severity", {"P0": "P0", "P1": "P1", "P2": "P2", "P3": "P3"})
"""How grave a finding is; P0 is the gravest."""


def review(  # noqa: PLR0913 - one parameter per option
    *,
    base: Annotated[str, opt(metavar="REF", help="What the change is made to.")] = "HEAD^",
    head: Annotated[str, opt(metavar="REF", help="The change.")] = "HEAD",
    patch: Annotated[Path | None, PATCH] = None,
    claims: Annotated[Text, opt(metavar="FILE", help="What the change says of itself, told late; - is stdin.")] = None,
    fail_on: Annotated[Severity | None, opt(help="Fail on this grave or graver, not on what is blocking.")] = None,
    format: Annotated[Texts, opt(metavar="FORMAT[=PATH]", help=FORMATS)] = None,
    passes: Annotated[int, opt(min=1, max=9, help="Independent reviews, made one by agreement.")] = 1,
    fresh: Annotated[bool, opt("--fresh", help="Ask again, also where the verdict is known.")] = False,
    dry_run: Annotated[bool, opt("--dry-run", help="Say what it could cost at most; ask no model.")] = False,
    record: Record = None,
    replay: Replay = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Judge a diff without a queue. Exit 0 pass, 1 fail, 3 inconclusive; the base configures it, not the head."""
    outs = destinations([*(format or ()), *(["json"] if as_json else [])])
    with accounted(outs):
        from agent_harness.app import App
        from agent_harness.config import load, trust
        from agent_harness.passes import Ask

        told = text_from(claims, "the claims") if claims else ""
        severity = fail_on.value if fail_on else ""
        ask = Ask(base, head, patch.read_bytes() if patch else None, told, severity, passes, fresh)
        git, read = of_commit(base)
        loaded = load(here(), sets=sets or (), db=db, read=read)
        need_repository(loaded.config.source(loaded.root))
        if why := unfit(loaded, git, head):
            place = tempfile.mkdtemp(prefix="agent-harness-state-")
            say(f"state and log are in {place}: {why}")
            loaded = load(here(), sets=[*(sets or ()), f"state.dir={place}"], db=db, read=read)
        trust.need(loaded, f"agent-harness trust --base {shlex.quote(base)}")
        if loaded.file is None:
            say(f"no harness.toml in {base}, whose own alone would count: defaults, environment and flags are in force")
        elif loaded.file.is_file() and loaded.file.read_bytes() != read(loaded.file):
            say(
                f"{loaded.file.name} counts as {base} has it, and the one that lies here differs: commit it there first"
            )
        with App(loaded.config, loaded.root, record=record, replay=replay) as app:
            if head == "HEAD" and patch is None:
                uncommitted(app.source)
            if dry_run:
                return priced(app.plan_review(ask), as_json)
            with signals.cancelling() as cancelled:
                report = app.review(ask, Progress(), cancelled)
        report = replace(report, exit=code([Exit(report.exit)]))
        publish(report, outs, str(loaded.root))
        return report.exit


def destinations(formats: Sequence[str]) -> list[Out]:
    """Formats and their files, one of them on stdout. What earlier reviews left in the files is removed: nobody shall
    take it for this one's. Raises UsageError."""
    parts = [one.partition("=") for one in formats]
    outs: list[Out] = [(name, Path(path).absolute() if mark else None) for name, mark, path in parts]
    known = entry_points(group=SINKS).names
    for name, path in outs:
        if name not in known:
            raise UsageError(f"--format {name} is unknown", next=f"use one of {', '.join(sorted(known))}")
        if path and (path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK)):
            raise UsageError(f"--format {name}={path} cannot be written", next="name a file in a folder that is there")
    if sum(path is None for _, path in outs) > 1:
        raise UsageError("only one format can go to stdout", next="give the others a file: --format FORMAT=PATH")
    for path in filter(None, (path for _, path in outs)):
        path.unlink(missing_ok=True)
    return outs if any(path is None for _, path in outs) else [*outs, ("text", None)]


@contextmanager
def accounted(outs: Sequence[Out]) -> Iterator[None]:
    """Whatever ends a review before there is a report is written to the files as inconclusive, with the reason."""
    try:
        yield
    except Exception as error:
        known = error if isinstance(error, HarnessError) else HarnessError(f"a bug: {type(error).__name__}")
        lost = ReviewReport("", "", "", "inconclusive", signals.code() or int(known.exit), known.line)
        publish(lost, [(name, path) for name, path in outs if path or name == "github"], str(here()))
        raise


def publish(report: ReviewReport, outs: Sequence[Out], root: str) -> None:
    """Write a report in each format. A file is replaced whole: a link that stands in its place is not followed."""
    for name, path in outs:
        made = next(iter(entry_points(group=SINKS, name=name))).load()(report, root)
        for place, text in (made if isinstance(made, dict) else {"": made}).items():
            try:
                if place:
                    with Path(os.environ.get(place) or os.devnull).open("a", encoding="utf-8") as file:
                        file.write(text)
                elif path:
                    write_whole(path, text.rstrip("\n") + "\n", over=True)
                else:
                    put(sys.stdout, text)
            except OSError as error:
                raise HarnessError(f"cannot write the review as {name}", why=str(error)) from error


def priced(plan: ReviewPlan, as_json: bool) -> int:
    """Print what a review would look at and could cost."""
    lines = [
        f"review    {plan.base[:12]}..{plan.head[:12]}: {plan.files} file(s), {plan.diff_bytes} bytes of diff",
        f"shown     {plan.shown} of {plan.hunks} hunks in the first prompt; the others have to be read",
        f"route     reviewer: {', '.join(plan.routes) or 'the recording'}",
        f"limits    {bounds(plan.limits)}, each of {plan.passes} pass(es)",
        f"worst     {dollars(plan.worst_nanousd)}",
    ]
    emit(plan, as_json, "\n".join(lines))
    return Exit.OK


def unfit(loaded: Loaded, git: Git, head: str) -> str:
    """Why the state cannot be kept where it would be, nothing where it can. A head that brings a state folder along
    would bring verdicts along, too."""
    state = loaded.config.state_dir(loaded.root)
    top = git.attempt("rev-parse", "--show-toplevel")
    if loaded.config.origin("state.dir") == "default":
        there = next(one for one in (state, *state.parents) if one.exists())
        if top.code or not os.access(there, os.W_OK | os.X_OK):
            return f"{there} is a bare repository" if top.code else f"{there} cannot be written"
    root, database = Path(os.fsdecode(top.out).rstrip("\n")), loaded.config.database(loaded.root)
    if top.code:
        return ""
    file = Path(database.removeprefix("sqlite:///"))
    if file != state / "harness.db" and database.startswith("sqlite:") and brought(git, root, head, file):
        raise UsageError(f"{file} is part of the repository itself", next="name another database: --db URL")
    return f"{state.relative_to(root)} is part of the repository itself" if brought(git, root, head, state) else ""


def brought(git: Git, root: Path, head: str, path: Path) -> bool:
    """Whether a head, or what is checked out, has something at a path, or a link or a repository on the way there."""
    way = [one for one in (path, *path.parents) if one != root and one.is_relative_to(root)]
    odd = [one for one in way if one == path or one.is_symlink() or (one / ".git").exists()]
    trees = [("ls-files", "--full-name", "--", *map(str, odd))] if odd else []
    trees += [("ls-tree", "--full-tree", "--end-of-options", head, str(one.relative_to(root))) for one in odd]
    return any(git.attempt(*words).out for words in trees)


def of_commit(ref: str) -> tuple[Git, Callable[[Path], bytes | None]]:
    """Git here, and what reads configuration files as a commit has them. Raises UsageError for an unknown commit."""
    from agent_harness.git import Git
    from agent_harness.passes import DEEPER
    from agent_harness.workspace.source import need_one

    git = Git(None, cwd=here())
    looked = git.attempt("rev-parse", "--is-shallow-repository")
    if looked.code:
        raise UsageError(f"{here()} is not a git repository", next="run this inside one")
    commit = git.attempt("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    need_one(ref, b"is ambiguous" not in commit.err)
    if commit.code:
        deeper = f"the clone is shallow: {DEEPER}" if looked.out.startswith(b"true") else "fetch it"
        raise UsageError(f"--base {ref} is not a commit here", next=f"{deeper}, or name another: --base REF")
    top = os.fsdecode(git.attempt("rev-parse", "--show-toplevel").out).rstrip("\n")
    root, name = Path(top or here()), commit.out.decode().strip()

    def read(path: Path) -> bytes | None:
        if not path.is_relative_to(root):
            return None
        done = git.attempt("cat-file", "blob", f"{name}:{path.relative_to(root)}")
        return done.out if done.code == 0 else None

    return git, read
