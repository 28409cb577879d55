import pytest

from agent_harness.delivery import message, trailers


def test_title_body_and_trailers():
    text = message("Fix  the\nparser", "Why.\n", {"Harness-Item": "a-1", "Harness-Run": "r"})
    assert text == "Fix the parser\n\nWhy.\n\nHarness-Item: a-1\nHarness-Run: r\n"
    assert trailers(text) == [("Harness-Item", "a-1"), ("Harness-Run", "r")]


def test_a_long_title_is_cut_to_one_line_of_72():
    title = message("x" * 200, "", {}).splitlines()[0]
    assert len(title) == 72
    assert title.endswith("…")


def test_control_characters_go():
    assert message("a\x1b[31mb\0", "c\rd\x07", {"K": "v\nEvil: x"}) == "a[31mb\n\ncd\n\nK: v Evil: x\n"


def test_a_body_cannot_pose_as_trailer():
    text = message("t", "Harness-Item: other", {"Harness-Item": "mine"})
    assert trailers(text) == [("Harness-Item", "mine")]


def test_an_empty_title_gets_one():
    assert message(" \n", "", {}) == "Change\n"
    assert trailers("Harness-Item: x\n") == []


def test_a_name_that_is_no_trailer_is_refused():
    with pytest.raises(ValueError, match="trailers"):
        message("t", "", {"two words": "x"})
