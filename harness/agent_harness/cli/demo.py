"""`demo`: one item the whole way, on a repository made for it, with recorded answers of a model."""

from pathlib import Path

from agent_harness.cli.opening import Json
from agent_harness.cli.output import PROGRAM, emit, say
from agent_harness.cli.run import code, shown, work


def demo(*, as_json: Json = False) -> int:
    """Fix a real bug in a small repository. The model's answers are recorded; all else is real."""
    import shlex
    import tempfile

    from agent_harness import demo as embedded
    from agent_harness.app import App
    from agent_harness.config import load

    folder = Path(tempfile.mkdtemp(prefix="agent-harness-demo-"))
    root = embedded.make_repository(folder / "bill")
    say(f"a repository with a bug is in {root}")
    say("the model's answers are recorded: no model is asked, no key is needed, nothing is paid. All else is real.")
    loaded = load(root, env={})
    with App(loaded.config, loaded.root, replay=embedded.RECORDING) as app:
        item, _ = app.queue.add(embedded.ITEM)
        say(f"queued {item.id}: {item.title}")
        reports = work(app, item.id, until_empty=False)
    report = reports[-1]
    diff = report.diff.decode("utf-8", "backslashreplace").rstrip("\n")
    emit({"folder": root, "runs": reports}, as_json, f"{shown(report)}\n\n{diff}")
    if report.branch:
        say("next, try:")
        program = shlex.quote(called())
        say(f"  git -C {root} log -p -1 {report.branch}")
        say(f"  cd {root} && {program} audit show {report.run}")
        say(f"  cd YOUR-REPOSITORY && {program} init")
    return code([report.exit])


def called() -> str:
    """What starts this program from any folder: its name where the PATH has it, else the file beside this Python."""
    import shutil
    import sys

    beside = Path(sys.executable).with_name(PROGRAM)
    return PROGRAM if shutil.which(PROGRAM) or not beside.exists() else str(beside)
