import pytest

from agent_harness.workspace.entries import folders, leads_out, means_git, shown, unsafe


@pytest.mark.parametrize(
    ("path", "target", "reason"),
    [
        (b"a", b"b", ""),
        (b"d/a", b"../b", ""),
        (b"d/a", b"./x/../y", ""),
        (b"a", b"dangling/nowhere", ""),
        (b"a", b"/etc/passwd", "absolute"),
        (b"a", b"..", "out of the tree"),
        (b"d/a", b"../../etc", "out of the tree"),
        (b"d/a", b"../d/../../x", "out of the tree"),
        (b"a", b".git/config", "git's own folder"),
        (b"d/a", b"../.GIT/hooks/pre-commit", "git's own folder"),
        (b"a", b"a", "nowhere"),
    ],
)
def test_a_link_may_point_only_inside(path, target, reason):
    found = leads_out(path, {path: target})
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_link_that_leads_out_by_way_of_another_is_seen():
    # Read as text, `x/y/up/../etc` stays inside; but x/y/up is the top, and its parent is outside.
    links = {b"x/y/up": b"../..", b"innocent": b"x/y/up/../etc"}
    assert leads_out(b"x/y/up", links) == ""
    assert "out of the tree" in leads_out(b"innocent", links)


def test_a_link_through_an_absolute_one_is_seen():
    links = {b"usr": b"/usr", b"lib": b"usr/lib"}
    assert "absolute" in leads_out(b"lib", links)


@pytest.mark.parametrize("name", [b".git", b".GIT", b".git ", b".git.", b"GIT~1", b".g\xe2\x80\x8cit", b".git::$INDEX"])
def test_names_that_some_system_takes_for_git(name):
    assert means_git(name)
    assert unsafe(b"sub/" + name)


@pytest.mark.parametrize(
    "name", [b".gitignore", b".gitattributes", b"git", b"x.git", b".git-blame-ignore-revs", b".gi"]
)
def test_names_that_are_not_git(name):
    assert not means_git(name)
    assert not unsafe(b"sub/" + name)


@pytest.mark.parametrize("path", [b"../x", b"a/../b", b"/x", b"a//b", b"./a", b"x" * 3000])
def test_paths_that_cannot_be_written(path):
    assert unsafe(path)


def test_folders_are_all_parents():
    assert folders([b"a/b/c", b"a/d", b"e"]) == {b"a", b"a/b"}


def test_shown_escapes_what_would_move_a_terminal():
    assert shown(b"a\n\x1b[31m\xffb") == r"a\n\x1b[31m\xffb"
