"""Edits: exact bytes, one place, all or none."""

import pytest

from agent_harness_roles.edits import EditRefusedError, apply


def edit(old, new):
    return {"old": old, "new": new}


def test_edits_are_applied_in_order():
    assert apply(b"a\nb\n", [edit("a", "x"), edit("x\nb", "y")]) == b"y\n"


@pytest.mark.parametrize(
    ("data", "old", "words"),
    [
        (b"abc\n", "zzz", "not found"),
        (b"one\ntwo\none\n", "one", "more than once \\(lines 1, 3\\)"),
        (b"aaa", "aa", "more than once"),
        (b"  if x:\n", "if  x:\n    y", "line 1 is close"),
    ],
)
def test_a_text_that_is_no_single_place_is_refused(data, old, words):
    with pytest.raises(EditRefusedError, match=words):
        apply(data, [edit(old, "new")])


def test_one_bad_edit_refuses_the_set_and_is_named():
    with pytest.raises(EditRefusedError, match="edit 2 of 2"):
        apply(b"a\nb\n", [edit("a", "x"), edit("zzz", "y")])


def test_edits_that_change_nothing_are_refused():
    with pytest.raises(EditRefusedError, match="same text"):
        apply(b"a", [edit("a", "a")])
    with pytest.raises(EditRefusedError, match="change nothing"):
        apply(b"a", [edit("a", "b"), edit("b", "a")])


def test_bytes_around_the_edit_stay_exact():
    data = b"caf\xe9 \xff\x00\r lone\nname = 1\nno newline at the end"
    assert apply(data, [edit("name = 1", "name = \u00e9")]) == data.replace(b"name = 1", "name = \u00e9".encode())


def test_a_crlf_file_stays_crlf():
    data = b"a\r\nb\r\nc\r\n"
    assert apply(data, [edit("a\nb\n", "x\ny\nz\n")]) == b"x\r\ny\r\nz\r\nc\r\n"
    assert apply(data, [edit("b", "b1\nb2")]) == b"a\r\nb1\r\nb2\r\nc\r\n"
    assert apply(data, [edit("a\r\nb", "q\r\nr")]) == b"q\r\nr\r\nc\r\n"


def test_mixed_line_ends_are_edited_where_the_text_stands():
    assert apply(b"a\r\nb\r\nc\nd\n", [edit("a\nb\n", "x\ny\n")]) == b"x\r\ny\r\nc\nd\n"
    assert apply(b"a\r\nb\r\nc\nd\n", [edit("c\nd\n", "x\ny\n")]) == b"a\r\nb\r\nx\ny\n"
