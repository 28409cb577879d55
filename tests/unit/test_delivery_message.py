from agent_harness.delivery import message


def test_title_and_trailers():
    text = message("Fix  the\nparser", {"Harness-Item": "a-1", "Harness-Run": "r"})
    assert text == "Fix the parser\n\nHarness-Item: a-1\nHarness-Run: r\n"


def test_a_long_title_is_cut_to_one_line_of_72():
    title = message("x" * 200, {}).splitlines()[0]
    assert len(title) == 72
    assert title.endswith("…")


def test_control_characters_and_lines_go():
    assert message("a\x1b[31mb\0\n\nK: t", {"K": "v\nEvil: x\x07"}) == "a[31mb K: t\n\nK: v Evil: x\n"


def test_an_empty_title_gets_one():
    assert message(" \n", {"K": "v"}) == "Change\n\nK: v\n"
