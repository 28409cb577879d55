"""`review`: judge a diff without a queue, as a gate in CI does."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_harness.cli import signals
from agent_harness.cli.events import Progress
from agent_harness.cli.opening import Db, Json, Sets, here, need_repository
from agent_harness.cli.output import emit, line, say
from agent_harness.cli.run import Record, Replay, code, need_recording
from agent_harness.errors import Exit, UsageError

if TYPE_CHECKING:
    from agent_harness.types import ReviewFinding, ReviewReport


class Severity(StrEnum):
    """How grave a finding is; P0 is the gravest."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


def review(
    *,
    base: Annotated[str, typer.Option(metavar="REF", help="What the change is made to.")] = "HEAD^",
    head: Annotated[str, typer.Option(metavar="REF", help="The change.")] = "HEAD",
    fail_on: Annotated[
        Severity | None, typer.Option(help="Fail on findings this grave or graver, instead of on blocking ones.")
    ] = None,
    record: Record = None,
    replay: Replay = None,
    sets: Sets = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Judge a diff without a queue. Exit 0 pass, 1 fail, 3 inconclusive; the base configures it, not the head."""
    from agent_harness.app import App
    from agent_harness.config import load

    need_recording(record, replay)
    loaded = load(here(), sets=sets or (), db=db, read=of_commit(base))
    need_repository(loaded.config.source(loaded.root))
    if loaded.file is None:
        say(f"no harness.toml in {base}; only the base's own counts: commit it there to have it judge the change")
        say("in force: defaults, the user's file, environment and flags")
    with App.open(loaded.config, loaded.root, record=record, replay=replay) as app, signals.cancelling() as cancelled:
        report = app.review(base, head, Progress(), cancelled)
    exit_ = judged(report, fail_on)
    emit({"exit": int(exit_), "review": report}, as_json, shown(report))
    return code([exit_])


def judged(report: ReviewReport, fail_on: Severity | None) -> Exit:
    """The exit code: the verdict's own, or by severity. An inconclusive review never passes, and what is not
    verified, or is waived, fails nothing."""
    if fail_on is None or report.exit not in {Exit.OK, Exit.FAILED}:
        return Exit(report.exit)
    return Exit.FAILED if any(one.counts and one.severity <= fail_on for one in report.findings) else Exit.OK


def shown(report: ReviewReport) -> str:
    """A review for people."""
    lines = [f"review    {report.base[:12]}..{report.head[:12]}: {report.verdict}", line(report.reason)]
    lines += [text for one in report.findings for text in finding(one)]
    return "\n".join(one for one in lines if one)


def finding(one: ReviewFinding) -> list[str]:
    """One finding: where, what, and the words it is about."""
    quoted = [f"    > {text}" for text in one.quote.splitlines()]
    return ["", f"{one.severity} {one.path}:{one.line}: {line(one.title)}", *quoted, f"    {line(one.body)}"]


def of_commit(ref: str) -> Callable[[Path], bytes | None]:
    """Reads configuration files as a commit has them. Raises UsageError where git does not know the commit."""
    from agent_harness.git import Git

    git = Git(None, cwd=here())
    top = git.attempt("rev-parse", "--show-toplevel")
    if top.code:
        raise UsageError(f"{here()} is not a git repository", next="run this inside one")
    commit = git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if commit.code:
        raise UsageError(f"--base {ref} is not a commit here", next="fetch it, or name another: --base REF")
    root, name = Path(top.out.decode().rstrip("\n")), commit.out.decode().strip()

    def read(path: Path) -> bytes | None:
        if not path.is_relative_to(root):
            return None
        done = git.attempt("cat-file", "blob", f"{name}:{path.relative_to(root)}")
        return done.out if done.code == 0 else None

    return read
