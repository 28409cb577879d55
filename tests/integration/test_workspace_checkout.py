import os
import stat
import subprocess

import pytest

from agent_harness.errors import UsageError
from agent_harness.workspace import HarnessRepository
from fakes.repos import git, make, snapshot

ODD = {
    b"crlf.txt": b"a\r\nb\r\n",
    b"lf.txt": b"a\nb\n",
    b"lone\rcr": b"a\rb",
    b"latin.txt": b"\xe4\xf6\xfc",
    b"no-end": b"x",
    b"empty": b"",
    b"id.c": b"$Id$\n",
    b"pointer.bin": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    b"-dash": b"1",
    b":(top)magic": b"2",
    b"new\nline/in\tname": b"3",
    b"\xff\xfe": b"4",
    "文/é": b"5",
    b"link": "crlf.txt",
    b"dangling": "nowhere/at all",
    b"img.png": b"\x89PNG\r\n\x1a\n\0\0",
    b".gitattributes": b"*.txt text=auto eol=crlf\n*.c ident\n*.bin filter=lfs\n*.png -diff\n",
    b".gitignore": b"empty\n*.log\n",
}


@pytest.fixture
def ours(tmp_path):
    return HarnessRepository.open(tmp_path / "repository.git")


@pytest.fixture
def source(tmp_path):
    make(tmp_path / "source", {b"first": b"1"})
    (tmp_path / "source/run.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "source/run.sh").chmod(0o755)
    make(tmp_path / "source", ODD)
    return tmp_path / "source"


@pytest.fixture
def tree(ours, source, tmp_path):
    base = ours.fetch(str(source), "main")
    ours.materialise(base, tmp_path / "tree", uid=1000, gid=1000)
    return tmp_path / "tree"


def test_the_bytes_are_the_objects(tree, source):
    assert snapshot(tree) == snapshot(source)
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tree / "lf.txt").stat().st_mode & 0o777 == 0o644


def test_its_own_git_knows_the_history_of_the_base_and_nothing_else(tree, source, ours):
    make(source, {"later": b"secret of the future"})
    git(source, "branch", "other")
    base = git(tree, "rev-parse", "HEAD")
    assert git(tree, "rev-list", "--all").splitlines() == git(source, "rev-list", "HEAD~1").splitlines()
    assert git(tree, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(tree, "reflog", "--all") == ""
    assert git(tree, "remote") == ""
    assert git(tree, "fsck", "--unreachable", "--no-reflogs") == ""
    reachable = git(tree, "rev-list", "--objects", "--no-object-names", "--all").splitlines()
    every = git(tree, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    assert sorted(line.split()[0] for line in every) == sorted(reachable)
    assert base in reachable


def test_its_git_shares_no_inode_and_no_alternate(tree, ours):
    mine = {p.stat().st_ino for p in ours.path.rglob("*") if p.is_file()}
    theirs = [p for p in (tree / ".git").rglob("*") if p.is_file()]
    assert not [p for p in theirs if p.stat().st_ino in mine or p.stat().st_nlink > 1]
    assert not (tree / ".git/objects/info/alternates").exists()


def test_status_in_it_is_clean_and_reads_no_file(tree, tmp_path):
    assert git(tree, "status", "--porcelain") == ""
    trace = git(tree, "-c", "core.trustctime=true", "diff-files", "--name-only")  # stat only: no refresh
    assert trace == ""
    (tree / "lf.txt").write_bytes(b"other\n")
    (tree / "made.py").write_bytes(b"1")
    assert git(tree, "status", "--porcelain").splitlines() == [" M lf.txt", "?? made.py"]
    git(tree, "commit", "-qam", "an agent may commit")


def test_the_same_commit_gives_the_same_folder(ours, source, tmp_path):
    base = ours.fetch(str(source), "main")
    for name in ("a", "b"):
        ours.materialise(base, tmp_path / name, uid=os.getuid(), gid=os.getgid())
    content = "find . -path ./.git/index -prune -o -type f -print0 | sort -z | xargs -0 sha1sum --zero"
    outside = r"find . -path ./.git -prune -o ! -type d -printf '%P %m %s %T@ %l\0' | sort -z"
    a, b = (subprocess.check_output(["bash", "-c", f"{content}; {outside}"], cwd=tmp_path / n) for n in ("a", "b"))
    assert a == b
    assert a.count(b"\0") > 40


def test_without_git(ours, source, tmp_path):
    base = ours.fetch(str(source), "main")
    done = ours.materialise(base, tmp_path / "plain", uid=os.getuid(), gid=os.getgid(), with_git=False)
    assert not (tmp_path / "plain/.git").exists()
    assert done.files == len(ODD) + 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_everything_away(tree):
    owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in (tree, *tree.rglob("*"))}
    assert owners == {(1000, 1000)}
    assert not [p for p in tree.rglob("*") if p.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)]


def test_a_folder_that_holds_something_is_refused(ours, source, tmp_path):
    base = ours.fetch(str(source), "main")
    (tmp_path / "used").mkdir()
    (tmp_path / "used/x").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        ours.materialise(base, tmp_path / "used", uid=0, gid=0)


@pytest.mark.parametrize("name", [b"..", b".git", b".GIT", b"git~1"])
def test_a_hostile_tree_is_not_written(ours, source, tmp_path, name):
    ours.fetch(str(source), "main")
    blob = ours.git.line("hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\n")
    raw = b"100755 pre-commit\0" + bytes.fromhex(blob)
    inner = ours.git.line("hash-object", "-w", "-t", "tree", "--stdin", "--literally", stdin=raw)
    outer = ours.git.line(
        "hash-object",
        "-w",
        "-t",
        "tree",
        "--stdin",
        "--literally",
        stdin=b"40000 " + name + b"\0" + bytes.fromhex(inner),
    )
    commit = ours.commit_tree(outer, ours.fetch(str(source), "main"), "evil")
    with pytest.raises(UsageError, match="cannot be checked out"):
        ours.materialise(commit, tmp_path / "t" / "x", uid=0, gid=0)
    assert not (tmp_path / "t").exists()


def test_old_packs_are_dropped(ours, tmp_path):
    for number in range(6):
        base = make(tmp_path / "many", {"n": b"%d" % number})
        ours.fetch(str(tmp_path / "many"), base)
        ours.materialise(base, tmp_path / f"t{number}", uid=os.getuid(), gid=os.getgid())
    assert len([p for p in (ours.path / "harness-packs").iterdir() if p.is_dir()]) == 3
