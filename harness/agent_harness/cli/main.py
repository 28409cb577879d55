"""The entry point, and the one place where everything that went wrong becomes a line and an exit code."""

import gc
import os
import sys
from typing import Annotated, Any

import typer

from agent_harness import __version__
from agent_harness.cli import (
    audit,
    bench,
    config,
    demo,
    doctor,
    guard,
    init,
    prices,
    queue,
    review,
    run,
    signals,
    survey,
    trust,
)
from agent_harness.cli.opening import Help, Json, group
from agent_harness.cli.output import PROGRAM, emit, line, put, say
from agent_harness.errors import Cancelled, Exit, HarnessError, InfrastructureError, UsageError

EPILOG = """\b
Exit codes:
  0    done, passed, holds
  1    a gate or the item failed on its merits
  2    usage or configuration
  3    inconclusive: infrastructure, provider, sandbox, or a bug
  4    credentials are missing or were refused
  5    nothing to do
  6    a limit was reached; the work is kept
  7    the audit log cannot be written or does not verify
  8    held for a person
  130  interrupted (143: terminated); the state is saved

Data goes to stdout, words for people to stderr. --json works with every command."""

CLICK_ERROR: type[Exception] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""What typer raises for wrong usage; some of its versions bring a click of their own."""

HELP = "Queue work for a repository: bounded agent loops do it in a sandbox; what every gate passed is delivered."

app = group(HELP, EPILOG)
for command in (demo.demo, init.init, doctor.doctor, run.run, review.review, survey.survey, survey.assess, guard.guard):
    app.command()(command)
app.command()(trust.trust)
for module in (queue, audit, config, prices, bench):
    app.add_typer(module.app, name=module.__name__.rpartition(".")[2])


@app.command()
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    emit({"version": __version__}, as_json, f"{PROGRAM} {__version__}")


@app.callback(invoke_without_command=True, help=HELP, epilog=EPILOG)
def root(
    context: typer.Context,
    *,
    shown: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    wanted: Help = False,
) -> int:
    """The program without a command: its version, or its help."""
    del wanted
    if shown:
        version(as_json=as_json)
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        put(sys.stderr, context.get_help())
        return Exit.USAGE
    if as_json:
        raise UsageError("--json stands before the command", next="write it after: agent-harness COMMAND --json")
    return Exit.OK


def main() -> None:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(100_000, 50, 50)  # what imports make stays: looking through it was a fifth of every start
    for number in (0, 1, 2):
        hold(number)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signals.install()
    sys.exit(guarded(sys.argv[1:]))


def hold(number: int) -> None:
    """Keep a closed standard descriptor from being given to a file of ours, which somebody would then write into."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def guarded(words: list[str]) -> int:
    """Run a command; every way it can end is an exit code, and one line where it is not 0."""
    as_json = "--json" in words
    try:
        done = typer.main.get_command(app).main(words, prog_name=PROGRAM, standalone_mode=False)
        return int(done or 0)
    except HarnessError as error:
        return told(error, as_json)
    except CLICK_ERROR as error:
        return told(usage(error), as_json)
    except (signals.Stopped, KeyboardInterrupt, typer.Abort):
        return told(Cancelled("interrupted", why="what was recorded so far is kept"), as_json)
    except Exception as error:
        return told(bug(error), as_json)


def told(error: HarnessError, as_json: bool) -> int:
    """Say what went wrong; returns its exit code."""
    code = int(error.exit)
    if isinstance(error, Cancelled):
        code = signals.code() or code
    facts = {"kind": type(error).__name__, "what": error.what, "why": error.why, "next": error.next, "exit": code}
    try:
        if as_json:
            emit({"error": facts}, as_json, "")
        say(f"{PROGRAM}: {line(error.line)}")
    except HarnessError:  # stdout or stderr takes nothing more: the exit code still says it
        pass
    return code


def usage(error: Any) -> UsageError:
    """A wrong command line, as ours."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else PROGRAM
    return UsageError(line(error.format_message()).replace("Value error, ", "").rstrip(".?"), next=f"{path} --help")


def bug(error: Exception) -> HarnessError:
    """Anything nobody foresaw: a report is saved, and the line says where. A file that refuses is no bug."""
    import platform
    import tempfile
    import traceback

    if os.environ.get("AGENT_HARNESS_DEBUG") == "1":
        traceback.print_exc()
    if isinstance(error, OSError) and error.filename is not None:
        return InfrastructureError(f"cannot use {error.filename}", why=error.strerror or type(error).__name__)
    where = f"{PROGRAM} {__version__}, Python {platform.python_version()}, {platform.platform()}"
    report = f"{where}\ncommand: {sys.argv[1:2]}\n\n{''.join(traceback.format_exception(error))}"
    try:
        number, path = tempfile.mkstemp(prefix=f"{PROGRAM}-bug-", suffix=".txt")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123 - a descriptor
            file.write(report)
    except OSError:
        path = "nowhere: no temporary folder can be written"
    return HarnessError(
        f"this is a bug of {PROGRAM}",
        why=f"{type(error).__name__}: {line(str(error), 200)}",
        next=f"report it with {path}; look through it first, it may hold private paths",
    )


if __name__ == "__main__":
    main()
