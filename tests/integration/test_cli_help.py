"""The help is quick, imports nobody, and the README names only commands that exist."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from agent_harness.cli.main import EPILOG, app
from agent_harness.errors import Exit

ROOT = Path(__file__).parents[2]
VENDORS = {
    "docker",
    "litellm",
    "minisweagent",
    "openai",
    "sqlalchemy",
    "alembic",
    "pydantic",
    "structlog",
    "rich",
    "httpx",
}
LOADED = """
import sys
from agent_harness.cli.main import guarded
code = guarded(sys.argv[1:])
print(code, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def commands(group, path=()):
    """Every command there is, as words."""
    yield list(path)
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


ALL = list(commands(typer.main.get_command(app)))


def test_the_commands_are_those_promised():
    names = {words[0] for words in ALL if words}
    assert names == {
        "demo",
        "init",
        "doctor",
        "queue",
        "run",
        "review",
        "audit",
        "config",
        "guard",
        "bench",
        "prices",
        "version",
        "survey",
        "assess",
        "trust",
    }
    assert {words[1] for words in ALL if words[:1] == ["queue"] and words[1:]} == {
        "add",
        "list",
        "show",
        "retry",
        "cancel",
        "import",
        "done",
    }
    assert {words[1] for words in ALL if words[:1] == ["audit"] and words[1:]} == {
        "ls",
        "show",
        "cost",
        "stats",
        "verify",
    }


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "main")
def test_help_imports_no_vendor(words):
    done = subprocess.run([sys.executable, "-c", LOADED, *words, "--help"], capture_output=True, text=True, check=True)
    code, *modules = done.stderr.split()
    assert code == "0" and done.stdout.startswith("Usage: agent-harness")
    assert not VENDORS & set(modules)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["queue", "add", "--help"]], ids=" ".join)
def test_help_takes_less_than_a_third_of_a_second(words):
    """Processor time: what a person waits on an idle machine, whatever else runs on this one."""

    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([Path(sys.executable).with_name("agent-harness"), *words], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.3


@pytest.mark.parametrize("words", [words for words in ALL if words], ids=" ".join)
def test_every_command_knows_json(words):
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    if not getattr(command, "commands", None):
        assert any("--json" in one.opts for one in command.params)


def test_the_help_tells_every_exit_code():
    told = {int(code) for code in re.findall(r"^  (\d+) ", EPILOG, re.MULTILINE)}
    assert told == {int(code) for code in Exit}


def test_every_command_in_the_readme_exists():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(
        r"agent-harness ((?:[a-z]+)(?: [a-z]+)?)",
        "\n".join(re.findall(r"`[^`\n]+`|^(?:    |\$ ).+$", text, re.MULTILINE)),
    )
    known = {" ".join(words) for words in ALL}
    groups = {words[0] for words in ALL if len(words) > 1}
    for one in named:
        first, _, _ = one.partition(" ")
        assert one in known if first in groups else first in known, f"README names `agent-harness {one}`"
