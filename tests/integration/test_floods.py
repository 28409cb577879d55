"""Megabytes of hostile text, each read in seconds at most."""

import gzip
import json
import time

import pytest

from agent_harness.errors import NothingToDo, UsageError
from agent_harness.gates.counting import from_output
from agent_harness.importing import LONGEST_BRIEF, MOST_ITEMS, parse
from agent_harness_adapters.sinks import sarif
from fakes.reviews import many


@pytest.mark.parametrize(
    "text",
    [
        "- [ ] a\n" * (MOST_ITEMS + 1),
        "- [ ] a\n" + " b" * LONGEST_BRIEF,
        "#" + " " * 5_000_000 + "x\n- [ ] " + " " * 5_000_000,
        "```\n" * 100_000,
        "- [ ] a\n" + "  - `" + "`" * 5_000_000,
        "\\" * 10_000_000,
    ],
    ids=["items", "brief", "spaces", "fences", "ticks", "slashes"],
)
def test_hostile_files_are_refused_in_no_time(text):
    began = time.process_time()
    with pytest.raises((UsageError, NothingToDo)):
        parse(text)
    with pytest.raises((UsageError, NothingToDo)):
        parse("<!-- agent-harness plan 1 -->\n" + text)
    assert time.process_time() - began < 4


def test_sarif_stays_within_the_hosts_limits():
    told = sarif.render(many(6_000))
    (run,) = json.loads(told)["runs"]
    assert len(run["results"]) == 5_000 and len(gzip.compress(told.encode())) < 10_000_000
    assert (
        run["invocations"][0]["toolExecutionNotifications"][-1]["message"]["text"] == "1000 finding(s) do not fit here"
    )


def test_a_flood_of_lines_is_read_at_once():
    started = time.process_time()
    for line in (b"\n", b" \n", b"=\n", b"1 a", b"Ran 1 test in 1s\n", b"ok\n", b"Tests: 1 1 ", b"FAILED - "):
        from_output(line * (128_000 // len(line)))
    assert time.process_time() - started < 2
