"""Bad input: each with its exit code and exactly one clear line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_harness.cli import main

PROGRAM = Path(sys.executable).with_name("agent-harness")
ROUTE = '[routes.main]\nmodel = "openai/m"\napi_key_env = "OPENAI_API_KEY"\n'
CHECKS = '[project]\nchecks = ["python3 -m pytest -q"]\n'


def git(folder, *words):
    names = {f"GIT_{who}_{what}": "x@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **names}
    subprocess.run(["git", "-C", str(folder), *words], check=True, env=env, capture_output=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A committed project with a space and other letters in its path, and nobody's settings."""
    folder = tmp_path / "työ ü 日本"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.chdir(folder)
    for name in list(os.environ):
        if name.startswith("AGENT_HARNESS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def fails(capfd, *words):
    """Run a command that fails: its code and its one line; stdout stays empty, or is one JSON error."""
    capfd.readouterr()
    code = main.guarded(list(words))
    out, err = capfd.readouterr()
    assert err.startswith("agent-harness: ") and err.count("\n") == 1, err
    if "--json" in words:
        error = json.loads(out)["error"]
        assert error["exit"] == code and error["what"] in err
    else:
        assert out == ""
    return code, err


@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    ("text", "words", "code", "says"),
    [
        ("[limits]\nstep = 1", ["config", "show"], 2, "harness.toml: unknown key limits.step. Next: did you mean limits.steps?"),
        ("[limits]\nstep = 1", ["run"], 2, "unknown key limits.step"),
        ("[limits\n", ["config", "show"], 2, "harness.toml:1:8: not TOML"),
        ("[limits]\nsteps = 0", ["config", "show"], 2, "harness.toml: limits.steps must be a whole number above 0"),
        ("", ["config", "show", "--set", "limits.step=1"], 2, "--set: unknown key limits.step"),
        ("", ["config", "show", "--db", "x"], 2, "--db: state.db must be sqlite:///PATH"),
        ("", ["queue", "add", "Fix it"], 2, "no checks and neither has the project"),
        (CHECKS, ["queue", "add", ""], 2, "the title is empty"),
        (CHECKS, ["queue", "add", "a\nb"], 2, "the title is not a printable text"),
        (CHECKS, ["queue", "add", "a\udce4"], 2, "the title is not a printable text"),
        (CHECKS, ["queue", "add", "a", "--usd", "0"], 2, "--usd must be US dollars above 0"),
        (CHECKS, ["queue", "add", "a", "--steps", "0"], 2, "--steps"),
        (CHECKS, ["queue", "add", "a", "--seconds", "-1"], 2, "--seconds must be"),
        (CHECKS, ["queue", "add", "a", "--seconds", "nan"], 2, "--seconds"),
        (CHECKS, ["queue", "add", "a", "--allow", "everything"], 2, "--allow"),
        (CHECKS, ["queue", "add", "a", "--brief", "b", "--brief-file", "c"], 2, "exclude each other"),
        (CHECKS, ["queue", "add", "a", "--brief-file", "not there"], 2, "cannot read the brief from not there: No such file"),
        (CHECKS, ["queue", "add", "a", "--depends-on", "nope"], 2, "nope"),
        (CHECKS, ["queue", "add", "a", "--id", "Not An Id"], 2, "Not An Id"),
        (CHECKS, ["queue", "show", "nope"], 2, "there is no item 'nope'"),
        (CHECKS, ["queue", "retry", "nope"], 2, "there is no item 'nope'"),
        (CHECKS, ["queue", "cancel", "nope"], 2, "there is no item 'nope'"),
        (CHECKS, ["audit", "show", "nope"], 2, "there is no item or run nope"),
        (CHECKS, ["run"], 2, "no model route for the role implementer: none is configured. Next: uncomment [routes.main] in harness.toml"),
        (CHECKS + ROUTE, ["run"], 4, "the environment variable OPENAI_API_KEY is not set"),
        (CHECKS, ["run", "--replay", "no such file"], 2, "file 'no such file' does not exist"),
        (CHECKS, ["run", "--until-empty", "--item", "a"], 2, "--until-empty excludes"),
        (CHECKS, ["review", "--base", "no/such"], 2, "--base no/such is not a commit here"),
        (CHECKS, ["review", "--fail-on", "P9"], 2, "--fail-on"),
        (CHECKS, ["init"], 2, "harness.toml is there already"),
        ("", ["queue", "lst"], 2, "No such command 'lst'"),
        ("", ["run", "--no-such-option"], 2, "--no-such-option"),
    ],
    ids=lambda value: " ".join(map(ascii, value)) if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_input(project, capfd, text, words, code, says, json_too):
    if text:
        (project / "harness.toml").write_text(text)
    if words == ["run"] and "step" not in text:  # with nothing queued, that alone would be said
        assert main.guarded(["queue", "add", "T", "--brief", "b", "--check", "true"]) == 0
    got, line = fails(capfd, *words, *json_too)
    assert (got, says in line) == (code, True), line


@pytest.mark.parametrize("words", [["queue", "list"], ["run"], ["init"], ["review"], ["audit", "verify"]], ids=" ".join)
def test_no_git_repository(tmp_path, monkeypatch, capfd, words):
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.chdir(plain)
    code, line = fails(capfd, *words)
    assert code == 2 and f"{plain} is not a git repository" in line
    assert list(plain.iterdir()) == []


def test_a_removed_folder(project, capfd, monkeypatch):
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert fails(capfd, "queue", "list") == (
        2, "agent-harness: the current folder is gone. Next: change to the project's folder\n"
    )  # fmt: skip


def test_a_brief_that_is_no_text_or_too_long(project, capfd):
    (project / "harness.toml").write_text(CHECKS)
    (project / "b").write_bytes(b"\xff")
    assert "it is not UTF-8 text" in fails(capfd, "queue", "add", "a", "--brief-file", "b")[1]
    (project / "b").write_bytes(b"x" * (256 << 10) + b"x")
    assert "longer than 262144 bytes" in fails(capfd, "queue", "add", "a", "--brief-file", "b")[1]


def test_a_database_that_is_none_and_a_folder_that_is_a_file(project, capfd):
    (project / "harness.toml").write_text(CHECKS)
    (project / "x.db").write_bytes(b"this is no database, whatever its name says" * 99)
    code, line = fails(capfd, "queue", "list", "--db", "sqlite:///x.db")
    assert code == 3 and "x.db" in line
    (project / "file").write_text("")
    code, line = fails(capfd, "queue", "list", "--set", "state.dir=file")
    assert code == 3 and f"cannot use {project}/file: File exists" in line


# --- what only a process of its own shows -------------------------------------------------------------------


def start(project, *words, **options):
    env = {"PATH": os.environ["PATH"], "HOME": str(project), "TERM": "xterm-256color"} | options.pop("env", {})
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([PROGRAM, *words], cwd=project, env=env, **pipes)


def finished(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def wait_until_caught(pid, number):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        if int(status["SigCgt"], 16) >> (number - 1) & 1 and status["Name"].startswith("agent-harness"):
            time.sleep(0.1)
            return
        time.sleep(0.02)
    raise AssertionError("the signal is never caught")


def test_a_bug_is_one_line_and_a_saved_report(project, tmp_path):
    (project / "harness.toml").write_text(CHECKS)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys\nclass Broken:\n    def find_spec(self, name, *rest):\n"
        "        if name == 'agent_harness.config':\n            raise RuntimeError('not foreseen\\nat all')\n"
        "sys.meta_path.insert(0, Broken())\n"
    )
    env = {"PYTHONPATH": str(broken), "TMPDIR": str(tmp_path)}
    code, out, err = finished(start(project, "config", "show", env=env))
    assert code == 3 and out == b""
    assert err.startswith(b"agent-harness: this is a bug of agent-harness: RuntimeError: not foreseen at all. Next: ")
    assert err.count(b"\n") == 1
    (report,) = tmp_path.glob("agent-harness-bug-*.txt")
    assert str(report).encode() in err and report.stat().st_mode & 0o777 == 0o600
    assert "Traceback" in report.read_text()
    code, _, err = finished(start(project, "config", "show", env=env | {"AGENT_HARNESS_DEBUG": "1"}))
    assert code == 3 and b"Traceback" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_with_one_line(project, number, code):
    (project / "harness.toml").write_text(CHECKS)
    process = start(project, "queue", "add", "a", "--brief-file", "-", stdin=subprocess.PIPE)
    wait_until_caught(process.pid, signal.SIGTERM)
    process.send_signal(number)
    got, out, err = finished(process)
    assert (got, out) == (code, b"")
    assert err == b"agent-harness: interrupted: what was recorded so far is kept\n"


def test_a_reader_that_left_is_no_error(project):
    read, write = os.pipe()
    os.close(read)
    code, _, err = finished(start(project, "config", "show", stdout=write))
    os.close(write)
    assert (code, err) == (0, b"")


def test_a_full_disk_under_stdout_is_said(project):
    with open("/dev/full", "wb") as full:
        code, _, err = finished(start(project, "config", "show", stdout=full))
    assert code == 3 and err == b"agent-harness: cannot write to <stdout>: No space left on device\n"


def test_closed_descriptors_are_never_given_to_the_database(project):
    (project / "harness.toml").write_text(CHECKS)
    shell = f'exec "{PROGRAM}" queue add a <&- >&- 2>&-'
    env = {"PATH": os.environ["PATH"], "HOME": str(project)}
    assert subprocess.run(["bash", "-c", shell], cwd=project, env=env, timeout=60).returncode == 0
    code, out, _ = finished(start(project, "audit", "verify", "--json"))
    assert code == 0 and json.loads(out)["size"] == 1


def test_stdin_is_not_read_without_being_asked_for(project):
    (project / "harness.toml").write_text(CHECKS)
    script = f'printf "rest" | {{ "{PROGRAM}" queue add a >/dev/null 2>&1; cat; }}'
    env = {"PATH": os.environ["PATH"], "HOME": str(project)}
    done = subprocess.run(["bash", "-c", script], cwd=project, env=env, timeout=60, capture_output=True)
    assert done.stdout == b"rest"


def test_stdin_that_is_closed_and_asked_for(project):
    (project / "harness.toml").write_text(CHECKS)
    shell = f'exec "{PROGRAM}" queue add a --brief-file - <&-'
    env = {"PATH": os.environ["PATH"], "HOME": str(project)}
    done = subprocess.run(["bash", "-c", shell], cwd=project, env=env, timeout=60, capture_output=True)
    assert done.returncode == 2 and b"stdin, which is closed" in done.stderr
