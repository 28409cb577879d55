"""Observations: clean, without secrets, cut only where they say so."""

import pytest

from agent_harness.types import CommandEnd, CommandResult
from agent_harness.types.text import clean, is_clean
from agent_harness_roles.observe import seen
from fakes.sandbox import result

PLAIN = str


def shown(output, limit=1000, redact=PLAIN, **more):
    return seen(result(output, **more), 10.0, redact, limit)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\0b\x01\x7f", "ab"),
        (b"\x1b[31mred\x1b[0m\x1b(B", "red"),
        (b"10%\r20%\r\ndone\r\n", "10%\n20%\ndone\n"),
        ("caf\u00e9 \u6f22\tx".encode(), "caf\u00e9 \u6f22\tx"),
        (b"\xff.txt", "\ufffd.txt"),
        (b"\x1b]0;evil()\x07rest", "0;evil()rest"),  # what a terminal would hide stays to be seen
        (b"\x1b]0;never ended", "0;never ended"),
    ],
)
def test_output_is_what_every_provider_takes(raw, text):
    assert shown(raw).output == text


def test_lone_surrogates_are_replaced():
    assert clean("a\udcffb") == "a\ufffdb"
    assert is_clean(clean("\ud800\0\x1b[1m\r"))
    clean("a\udcffb").encode()


def test_a_long_log_keeps_its_summary_and_names_what_was_cut():
    log = "".join(f"test_{n} PASSED\n" for n in range(5000)) + "=== 1 failed, 4999 passed ===\n"
    observed = shown(log, limit=4000)
    assert observed.output.startswith("test_0 PASSED")
    assert "1 failed, 4999 passed" in observed.output
    cut = int(observed.output.split("[... ")[1].split(" bytes cut")[0])
    kept = len(observed.output.encode())
    assert 4000 - 2 * len("test_4999 PASSED") < len(log) - cut <= 4000 and kept < 4200
    assert set(observed.output.splitlines()) - set(log.splitlines()) == {
        observed.output.splitlines()[-cut_at(observed)]
    }


def cut_at(observed) -> int:
    """Which line from the end tells of the cut: all others stood in the output."""
    lines = observed.output.splitlines()
    return len(lines) - next(n for n, line in enumerate(lines) if line.startswith("[... "))


def test_an_output_of_exactly_the_limit_is_not_cut():
    assert "cut" not in shown("x" * 1000).output
    assert "bytes cut" in shown("x" * 1001).output


def test_what_the_sandbox_cut_is_counted_and_found():
    whole = b"".join(b"line %d\n" % n for n in range(10_000))
    cut = CommandResult(CommandEnd.EXITED, 0, whole[:400], whole[-1600:], len(whole), 0.1, "/tmp/.harness-output/7")
    text = seen(cut, 10.0, PLAIN, 2000).output
    head, rest = text.split("\n[... ")
    number, tail = rest.split(" bytes cut; whole output: /tmp/.harness-output/7 ...]\n")
    assert int(number) + len(head) + 1 + len(tail) == len(whole)


def test_a_secret_is_taken_out_before_anything_is_cut():
    secret = "sk-" + "s3cr3t" * 10
    redact = lambda text: text.replace(secret, "[secret]")
    for offset in range(150, 260, 7):
        observed = shown("x" * offset + secret + "y" * 4000, limit=1000, redact=redact)
        assert "s3cr3t" not in observed.output
    coloured = secret[:8] + "\x1b[0m" + secret[8:]
    assert "s3cr3t" not in shown(coloured, redact=redact).output


def test_half_a_secret_at_the_sandboxs_cut_is_taken_off_too():
    secret = "sk-" + "s3cr3t" * 10
    redact = lambda text: text.replace(secret, "[secret]")
    for newline in (b"\n", b" "):
        head, tail = b"x" * 3000 + newline + secret[:30].encode(), secret[30:].encode() + newline + b"y" * 3000
        cut = CommandResult(CommandEnd.EXITED, 0, head, tail, 100_000, 0.1, "/tmp/o")
        assert "s3cr3t" not in seen(cut, 10.0, redact, 16_000).output


def test_binary_output_that_grows_when_shown_is_still_bounded():
    assert len(shown(b"\xff" * 1000, limit=1000).output.encode()) < 1200


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (CommandEnd.TIMEOUT, "timed out after 10 s"),
        (CommandEnd.OUT_OF_MEMORY, "out of memory"),
        (CommandEnd.SIGNALLED, "signal"),
        (CommandEnd.IDLE, "printed nothing"),
        (CommandEnd.EXITED, "exit code 3"),
    ],
)
def test_the_way_it_ended_is_said_first(end, words):
    text = shown("out\n", end=end, code=3).text
    assert words in text.split("\n")[0]
    assert "no output" in shown("", end=end).text
