"""What the command line prints, and the codes it ends with, without any project."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from agent_harness.cli import init, output, queue, run
from agent_harness.cli.events import Progress, event_line
from agent_harness.cli.review import Severity
from agent_harness.config.shape import Ceilings
from agent_harness.errors import Exit, HarnessError, UsageError
from agent_harness.receipt import RunReport
from agent_harness.types import Check, Event, ItemState, Limits
from agent_harness.types.kinds import Kind


def test_control_characters_cannot_steer_a_terminal():
    assert output.clean("a\x1b[31mb\x07\u202ec\td\ne\udc80") == "a\\x1b[31mb\\x07\\u202ec\td\ne\\udc80"
    assert output.clean("työ 日本 😀") == "työ 日本 😀"


def test_plain_is_json_of_every_noun():
    report = RunReport("i", "r", "delivered", Exit.OK, "", {"a": (1, None)}, diff=b"+\xff\n")
    assert json.loads(json.dumps(output.plain([report, Check("x"), ItemState.READY]))) == [
        {
            "item": "i",
            "run": "r",
            "outcome": "delivered",
            "exit": 0,
            "reason": "",
            "receipt": {"a": [1, None]},
            "branch": "",
            "commit": "",
            "diff": "+\\xff\n",
        },
        {"command": "x", "kind": "tests", "timeout_s": 600.0, "no_worse": False},
        "ready",
    ]


def test_columns_stand_below_each_other_and_nothing_trails():
    assert output.table(("A", "BB"), [("x\ny", 1), ("long", "")]) == "A     BB\nx y   1\nlong"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_readable_in_any_encoding(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    with redirect_stdout(stream):
        output.emit({"title": "työ 😀 \udc80"}, True, "")
    assert json.loads(raw.getvalue().decode(encoding))["title"] == "työ 😀 \udc80"


def test_a_closed_stdout_is_no_error_and_a_full_one_is():
    with redirect_stdout(None):
        output.emit({}, False, "text")
    with open("/dev/full", "w") as full, pytest.raises(HarnessError, match="No space left"):
        output.put(full, "text")


@pytest.mark.parametrize(
    ("exits", "code"),
    [
        ([Exit.OK], 0),
        ([Exit.OK, Exit.FAILED], 1),
        ([Exit.FAILED, Exit.LIMIT, Exit.OK], 6),
        ([Exit.LIMIT, Exit.HELD], 8),
        ([Exit.HELD, Exit.INCONCLUSIVE], 3),
        ([Exit.INCONCLUSIVE, Exit.INTERRUPTED], 130),
        ([Exit.INTERRUPTED, Exit.CREDENTIALS], 4),
        ([Exit.CREDENTIALS, Exit.AUDIT], 7),
    ],
)
def test_the_gravest_end_of_several_items_is_the_commands(exits, code):
    assert run.code(exits) == code == run.code(reversed(exits))


def test_every_code_an_item_can_end_with_has_a_gravity():
    assert set(run.GRAVITY) == set(Exit) - {Exit.NOTHING}


SIGNALLED = """
import os, signal
from agent_harness.cli import output, run, signals
from agent_harness.errors import Exit
signals.install()
with signals.cancelling() as cancelled:
    os.kill(os.getpid(), signal.SIGTERM)
    assert cancelled.is_set() and signals.code() == run.code([Exit.OK]) == 143 == output.plain([Exit.INTERRUPTED])[0]
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except signals.Stopped:
        print("ended")
"""


def test_the_first_signal_asks_and_the_second_ends():
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n" and "stopping; the state is being saved" in done.stderr


def test_money_is_read_exactly():
    limits = queue.limited(Ceilings(steps=7), usd="2.50", seconds=None)
    assert limits == Limits(7, 3_000_000, 2_500_000_000, 3600.0)
    assert queue.limited(Ceilings(), usd=None, seconds=None) is None
    for wrong in ("0", "-1", "nan", "inf", "1e9", "two"):
        with pytest.raises(UsageError, match="--usd must be US dollars"):
            queue.limited(Ceilings(), usd=wrong)


# --- live progress ------------------------------------------------------------------------------------------


def story(*events):
    lines = []
    progress = Progress(lines.append)
    for at_ms, kind, data in events:
        progress(Event(1, at_ms, kind, "i", "r", data, ""))
    return lines


STARTED = (0, Kind.RUN_STARTED, {"generation": 1, "base": "HEAD", "mode": "replay"})
ROLE = (1000, Kind.ROLE_STARTED, {"role": "implementer", "mode": "rw", "limits": {"steps": 60}})


def answer(at_ms, nanousd=12_300_000, finish="tools"):
    return (at_ms, Kind.MODEL_ANSWERED, {"nanousd": nanousd, "finish": finish})


def test_a_command_is_one_line_with_turn_spend_and_time():
    command = "python -m pytest -q \\\n  tests"
    assert story(
        STARTED,
        ROLE,
        answer(2000),
        (2000, Kind.COMMAND_STARTED, {"where": "x", "command": command}),
        (41_900, Kind.COMMAND_ENDED, {"where": "x", "end": "exited", "exit_code": 1, "seconds": 2.13}),
    ) == [
        "[run $0.0000 00:00] attempt 1 from HEAD; the answers are recorded: the cost shown was theirs then, nothing is paid now",
        "[implementer 0/60 $0.0000 00:01] started",
        "[implementer 1/60 $0.0123 00:41] $ python -m pytest -q \\ tests … exit 1 (2.1 s)",
    ]


def test_who_is_asked_is_said_once_and_never_of_a_recording():
    asked = (1000, Kind.MODEL_ASKED, {"model": "p/m", "route": "main", "call": 1})
    live = (0, Kind.RUN_STARTED, {"generation": 1, "base": "HEAD", "mode": "live"})
    again = (1000, Kind.MODEL_ASKED, {"model": "p/m", "route": "main", "call": 2})
    assert sum("asking p/m by route main" in line for line in story(live, ROLE, asked, answer(1), again)) == 1
    assert not any("asking" in line for line in story(STARTED, ROLE, asked, answer(1), again))


def test_long_commands_are_cut_and_other_ends_are_named():
    lines = story(
        (0, Kind.COMMAND_STARTED, {"where": "x", "command": "x" * 500}),
        (0, Kind.COMMAND_ENDED, {"where": "x", "end": "out_of_memory", "exit_code": 137, "seconds": 1.0}),
    )
    assert lines[0].endswith("x… … out of memory (1.0 s)") and len(lines[0]) < 160


def test_spend_counts_failed_calls_and_unpriced_ones_as_nothing():
    lines = story(
        STARTED,
        ROLE,
        answer(1000, None),
        answer(1000, 500_000_000, "length"),
        (1000, Kind.MODEL_FAILED, {"route": "main", "fault": "retry", "why": "503", "nanousd": 250_000_000}),
    )
    assert lines[-2:] == [
        "[implementer 2/60 $0.5000 00:01] the answer ended early: length",
        "[implementer 2/60 $0.7500 00:01] route main failed (retry): 503",
    ]


def test_gates_and_delivery_are_told_with_their_reasons():
    lines = story(
        STARTED,
        (0, Kind.GATE_JUDGED, {"gate": "checks", "outcome": "fail", "seconds": 3.0, "reasons": ["a", "b"]}),
        (0, Kind.DELIVERY_LANDED, {"commit": "c" * 40, "target": "harness/i"}),
        (0, Kind.RUN_ENDED, {"outcome": "delivered", "reason": ""}),
        (0, Kind.RUN_ENDED, {"outcome": "gate_failed", "reason": "gate checks: a"}),
    )
    assert [line.split("] ")[1] for line in lines[1:]] == [
        "gate checks: fail (3.0 s): a; b",
        "delivered cccccccccccc on harness/i",
        "gate_failed: gate checks: a",
    ]


def test_a_line_outside_a_role_says_in_which_sandbox():
    lines = story(
        STARTED,
        (0, Kind.SANDBOX_READY, {"purpose": "checks-base", "seconds": 0.54}),
        (0, Kind.COMMAND_STARTED, {"where": "x", "command": "make"}),
        (0, Kind.COMMAND_ENDED, {"where": "x", "end": "exited", "exit_code": 0, "seconds": 1.0}),
        (0, Kind.SANDBOX_CLOSED, {}),
        (0, Kind.CANDIDATE_CAPTURED, {"tree": "a" * 40, "files": 2}),
    )
    assert lines[1:] == [
        "[checks-base $0.0000 00:00] sandbox ready in 0.5 s",
        "[checks-base $0.0000 00:00] $ make … exit 0 (1.0 s)",
        "[run $0.0000 00:00] candidate aaaaaaaaaaaa: 2 file(s) changed",
    ]


def test_an_event_of_another_shape_never_stops_a_run():
    assert "could not be shown" in story((0, Kind.RUN_ENDED, {}))[0]
    assert story((0, "kind.of.tomorrow", {})) == []


def test_an_event_is_one_line_of_the_log():
    data = {"a": {"b": [1, "x\ny"]}, "c": "sha256:" + "0" * 64}
    assert event_line(Event(7, 0, Kind.RUN_ENDED, "i", "r1", data, "")) == (
        "     7  1970-01-01 00:00:00  r1           run.ended            a={b=[1, x y]} c=sha256:000000000000"
    )


# --- init and review ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "checks"),
    [
        ({}, []),
        ({"tests/test_a.py": "import unittest"}, [init.UNITTEST]),
        ({"tests/sub/test_a.py": "import pytest"}, [init.PYTEST]),
        ({"test_a.py": "", "pyproject.toml": "[tool.pytest.ini_options]"}, [init.PYTEST]),
        ({"a/conftest.py": ""}, [init.PYTEST]),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, ["npm test"]),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, []),
        ({"package.json": "[broken"}, []),
        ({"Cargo.toml": "", "go.mod": ""}, ["cargo test", "go test -v ./..."]),
    ],
)
def test_checks_are_found_by_the_files_that_are_there(tmp_path, files, checks):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert init.detected(tmp_path) == checks


def test_severities_order_by_gravity():
    assert Severity.P0 < Severity.P1 < Severity.P2 < Severity.P3
