import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from agent_harness.errors import GitFault, UsageError
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import choose
from fakes.repos import git, make, snapshot


@pytest.fixture
def ours(tmp_path):
    return HarnessRepository.open(tmp_path / "state" / "repository.git")


@pytest.fixture
def source(tmp_path):
    make(tmp_path / "source", {"sub/a": b"1\n"})
    return tmp_path / "source"


def test_the_repository_is_private_and_opens_again(ours):
    assert stat.S_IMODE(ours.path.stat().st_mode) == 0o700
    assert HarnessRepository.open(ours.path).path == ours.path


def test_what_a_killed_capture_left_is_swept(ours):
    for name, age_s in (("harness-capture-old", 2 * 86_400), ("harness-capture-new", 60)):
        (ours.path / name).mkdir()
        then = (ours.path / name).stat().st_mtime - age_s
        os.utime(ours.path / name, (then, then))
    HarnessRepository.open(ours.path)
    assert [p.name for p in ours.path.glob("harness-capture-*")] == ["harness-capture-new"]


def test_only_the_named_history_comes_in(ours, source):
    base = git(source, "rev-parse", "HEAD")
    make(source, {"later": b"x"})
    git(source, "branch", "future")
    assert ours.fetch(str(source), base) == base
    assert ours.git.line("rev-list", "--all") == base
    assert ours.git.attempt("cat-file", "-e", git(source, "rev-parse", "future")).code


@pytest.mark.parametrize("ref", ["main", "HEAD", "refs/heads/main", "v1", "light", "origin/main", "HEAD~0"])
def test_refs_of_every_kind(ours, source, ref):
    head = git(source, "rev-parse", "HEAD")
    git(source, "tag", "-a", "v1", "-m", "one")
    git(source, "tag", "light")
    git(source, "update-ref", "refs/remotes/origin/main", head)
    assert ours.fetch(str(source), ref) == head
    assert ours.fetch(str(source), head[:9]) == head


@pytest.mark.parametrize("name", ["with space", "Übung-文", "-leading", "a:b", "new\nline", "it's $HOME"])
def test_any_folder_name(ours, tmp_path, name):
    head = make(tmp_path / name, {"a": b"1"})
    assert ours.fetch(str(tmp_path / name), "main") == head


def test_a_leading_dash_as_relative_path(ours, tmp_path, monkeypatch):
    head = make(tmp_path / "-x", {"a": b"1"})
    monkeypatch.chdir(tmp_path)
    assert ours.fetch("-x", "main") == head


def test_subfolder_worktree_bare_and_file_url(ours, source, tmp_path):
    head = git(source, "rev-parse", "HEAD")
    git(source, "worktree", "add", "-q", str(tmp_path / "wt"), "-b", "side")
    side = make(tmp_path / "wt", {"side": b"1"})
    git(tmp_path, "clone", "-q", "--bare", str(source), "bare dir.git")
    assert ours.fetch(str(source / "sub"), "HEAD") == head
    assert ours.fetch(str(tmp_path / "wt"), "HEAD") == side
    assert ours.fetch(str(tmp_path / "bare dir.git"), "main") == head
    assert ours.fetch((tmp_path / "bare dir.git").as_uri(), "main") == head


def test_an_unchanged_source_is_quick_and_moves_nothing(ours, source):
    ours.fetch(str(source), "main")
    packs = sorted((ours.path / "objects").rglob("*"))
    began = time.monotonic()
    ours.fetch(str(source), "main")
    assert time.monotonic() - began < 1
    assert sorted((ours.path / "objects").rglob("*")) == packs


def test_only_what_is_new_is_sent(ours, source):
    make(source, {"big": os.urandom(1 << 20)})
    ours.fetch(str(source), "main")
    newer = make(source, {"sub/a": b"2\n"})
    before = {p.name for p in (ours.path / "objects/pack").iterdir()}
    ours.fetch(str(source), "main")
    assert ours.read(newer, "sub/a", 10) == b"2\n"
    assert sum(p.stat().st_size for p in (ours.path / "objects/pack").iterdir() if p.name not in before) < 100_000


def test_an_unknown_ref_names_near_ones(ours, source):
    git(source, "branch", "feature/parser")
    with pytest.raises(UsageError, match=r"no commit named 'feature/parsre'.*did you mean feature/parser"):
        ours.fetch(str(source), "feature/parsre")


def test_near_ones_are_found_among_very_many(ours, source):
    head = git(source, "rev-parse", "HEAD")
    (source / ".git/packed-refs").write_text("".join(f"{head} refs/tags/b{n:06}\n" for n in range(100_000)))
    began = time.monotonic()
    with pytest.raises(UsageError, match="did you mean main"):
        ours.fetch(str(source), "mian")
    assert time.monotonic() - began < 8


def test_a_commit_that_cannot_be_read_is_not_called_unknown(ours, source):
    head = git(source, "rev-parse", "HEAD")
    path = source / ".git/objects" / head[:2] / head[2:]
    path.chmod(0o644)
    path.write_bytes(b"")
    with pytest.raises(GitFault, match=r"main of .* cannot be read.*git fsck"):
        ours.fetch(str(source), "main")


@pytest.mark.parametrize("ref", ["main:sub/a", "main^{tree}", "blob"])
def test_what_is_no_commit_is_a_usage_error(ours, source, ref):
    git(source, "tag", "blob", "main:sub/a")
    with pytest.raises(UsageError, match="no commit named"):
        ours.fetch(str(source), ref)


def test_a_worktree_whose_repository_moved_is_said(ours, source, tmp_path):
    git(source, "worktree", "add", "-q", str(tmp_path / "wt"), "-b", "side")
    source.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=r"not a git repository: .*/worktrees/wt.*git worktree repair"):
        ours.fetch(str(tmp_path / "wt"), "side")


def test_a_repository_that_cannot_be_opened_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GitFault, match="cannot be opened: "):
        HarnessRepository.open(tmp_path / "file")


@pytest.mark.parametrize("ref", ["main", "main~0", "origin/main"])
def test_a_tag_that_is_named_like_a_branch_does_not_take_its_place(ours, source, ref):
    head = git(source, "rev-parse", "HEAD")
    git(source, "update-ref", "refs/remotes/origin/main", head)
    git(source, "config", "core.warnAmbiguousRefs", "false")
    other = git(source, "commit-tree", f"{head}^{{tree}}", "-m", "evil")
    for name in ("main", "origin/main"):
        git(source, "update-ref", f"refs/tags/{name}", other)
    with pytest.raises(UsageError, match="names several things"):
        ours.fetch(str(source), ref)
    assert ours.fetch(str(source), "refs/heads/main") == ours.fetch(str(source), head) == head


def test_a_urls_tag_does_not_either():
    refs = {"refs/heads/main": "a" * 40, "refs/tags/main": "b" * 40, "refs/tags/v1": "c" * 40}
    with pytest.raises(UsageError, match="names several things"):
        choose(refs, "main")
    assert [choose(refs, name) for name in ("refs/heads/main", "v1", "x")] == ["refs/heads/main", "refs/tags/v1", None]


@pytest.mark.parametrize("ref", ["--all", "-h", "", "a..b", "main main", "\x00"[:0] + "refs/heads/"])
def test_a_ref_is_never_an_option(ours, source, ref):
    with pytest.raises(UsageError):
        ours.fetch(str(source), ref)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000, "http://a\0b", "a:\0", "x:" + "y" * 5000])
def test_what_can_be_no_name_is_said(ours, source, name):
    with pytest.raises(UsageError):
        ours.fetch(str(source), name)
    with pytest.raises((UsageError, GitFault)):
        ours.fetch(name, "main")


def test_what_is_no_repository_is_said(ours, tmp_path):
    (tmp_path / "plain").mkdir()
    for where, words in [("plain", "not in a git repository"), ("gone", "no such folder")]:
        with pytest.raises(UsageError, match=words):
            ours.fetch(str(tmp_path / where), "main")
    git(tmp_path / "plain", "init", "-q")
    with pytest.raises(UsageError, match="has no commits yet"):
        ours.fetch(str(tmp_path / "plain"), "HEAD")
    for url in ("ext::sh -c id", "ftp://h/x", "gopher://h/x"):
        with pytest.raises(UsageError):
            ours.fetch(url, "main")


def test_other_object_formats_are_said(ours, tmp_path):
    git(tmp_path, "init", "-q", "--object-format=sha256", "new")
    with pytest.raises(UsageError, match="object format is sha256"):
        ours.fetch(str(tmp_path / "new"), "HEAD")


def test_a_shallow_source_works_and_stays_shallow(ours, source, tmp_path):
    for number in range(5):
        make(source, {"n": b"%d" % number}, f"c{number}")
    git(tmp_path, "clone", "-q", "--depth=2", source.as_uri(), "shallow")
    base = ours.fetch(str(tmp_path / "shallow"), "main")
    ours.materialise(base, tmp_path / "tree", uid=os.getuid(), gid=os.getgid())
    assert len(git(tmp_path / "tree", "log", "--format=%H").splitlines()) == 2
    assert git(tmp_path / "tree", "fsck") == ""
    # The whole of it from elsewhere afterwards, and a newer commit of the shallow one.
    newer = make(tmp_path / "shallow", {"n": b"new"})
    assert ours.fetch(str(tmp_path / "shallow"), "main") == newer
    assert ours.read(newer, "n", 10) == b"new"


def test_a_partial_clone_says_what_it_needs(ours, source, tmp_path):
    make(source, {"sub/a": b"2\n"})
    git(source, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", source.as_uri(), "partial")
    with pytest.raises(UsageError, match="partial clone"):
        ours.fetch(str(tmp_path / "partial"), "main")


def test_submodules_are_left_empty_and_reported(ours, source, tmp_path):
    make(tmp_path / "lib", {"l": b"1"})
    git(source, "submodule", "--quiet", "add", str(tmp_path / "lib"), "vendor/lib")
    make(source, {"b": b"1"})
    base = ours.fetch(str(source), "main")
    done = ours.materialise(base, tmp_path / "tree", uid=os.getuid(), gid=os.getgid())
    assert done.submodules == ("vendor/lib",)
    assert list((tmp_path / "tree/vendor/lib").iterdir()) == []
    assert ours.capture(base, tmp_path / "tree", keep_as="refs/harness/work/a/1", message="m").empty
    (tmp_path / "tree/vendor/lib/x").write_text("x")
    seen = ours.capture(base, tmp_path / "tree", keep_as="refs/harness/work/a/1", message="m")
    assert [r.path for r in seen.refusals] == ["vendor/lib"]
    assert seen.changes == ()


def test_replaced_and_grafted_history_is_not_believed(ours, source, tmp_path):
    base = git(source, "rev-parse", "HEAD")
    make(source, {"sub/a": b"lie\n"})
    git(source, "replace", base, "HEAD")
    assert ours.fetch(str(source), base) == base
    assert ours.read(base, "sub/a", 10) == b"1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_root_reads_somebody_elses_repository(ours):
    with tempfile.TemporaryDirectory() as held:
        top = Path(held)
        top.chmod(0o755)
        head = make(top / "r", {"a": b"1"})
        for path in (top / "r", *(top / "r").rglob("*")):
            os.lchown(path, 12345, 12345)
        assert ours.fetch(str(top / "r"), "main") == head
        top.chmod(0o700)  # now its owner cannot reach it, root still can
        make_head = ours.fetch(str(top / "r"), "HEAD")
        assert make_head == head


def test_a_damaged_source_is_a_fault(ours, source):
    blob = git(source, "rev-parse", "HEAD:sub/a")
    (source / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitFault):
        ours.fetch(str(source), "main")
    assert ours.git.run("for-each-ref") == b""


# --- over the wire ------------------------------------------------------------------------------------------------


@pytest.fixture
def wire(tmp_path, monkeypatch):
    """An `ssh` that runs the command here: git's own wire protocol, without a server."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    monkeypatch.setenv("GIT_SSH_VARIANT", "simple")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[safe]\n\tdirectory = *\n")
    return lambda path: f"ssh://host{path}"


def test_a_url_is_fetched_by_any_name(ours, source, wire, tmp_path):
    head = git(source, "rev-parse", "HEAD")
    git(source, "tag", "-a", "v1", "-m", "one")
    for ref in ("main", "HEAD", "v1", "origin/main", head):
        assert ours.fetch(wire(source), ref) == head
    assert ours.fetch(f"host:{source}", "main") == head
    newer = make(source, {"b": b"1"})
    assert ours.fetch(wire(source), "main") == newer
    assert ours.git.line("for-each-ref", "refs/harness/incoming") == ""
    ours.materialise(newer, tmp_path / "tree", uid=os.getuid(), gid=os.getgid(), with_git=False)
    assert snapshot(tmp_path / "tree") == snapshot(source)


def test_a_url_without_that_ref_or_repository(ours, source, wire, tmp_path):
    with pytest.raises(UsageError, match="did you mean main"):
        ours.fetch(wire(source), "mian")
    with pytest.raises(UsageError, match="cannot read ssh://host/nowhere"):
        ours.fetch(wire(Path("/nowhere")), "main")
    git(tmp_path, "init", "-q", "--bare", "empty.git")
    with pytest.raises(UsageError, match="has no commits yet"):
        ours.fetch(wire(tmp_path / "empty.git"), "main")


def test_a_url_with_a_secret_is_shown_without_it(ours):
    with pytest.raises(GitFault) as caught:
        ours.fetch("http://user:hunter2@127.0.0.1:9/x.git", "main")
    assert "hunter2" not in caught.value.line
    assert "127.0.0.1:9/x.git" in caught.value.line
