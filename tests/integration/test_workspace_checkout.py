import os
import stat
import subprocess

import pytest

from agent_harness.errors import UsageError
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.folders import boot
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


def trees_of(source):
    """Makes a tree of (mode, name, object id), and puts a commit of it on a branch."""
    blob, target = (git(source, "hash-object", "-w", "--stdin", stdin=data) for data in (b"1", b"/etc"))

    def tree(*rows):
        raw = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for mode, name, oid in rows)
        return git(source, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)

    def commit(top):
        git(source, "update-ref", "refs/heads/made", git(source, "commit-tree", top, "-m", "x"))

    return blob, target, tree, commit


@pytest.mark.parametrize("kind", [b"100644", b"120000"])
def test_what_is_a_folder_too_is_not_written(ours, source, tmp_path, kind):
    blob, target, tree, commit = trees_of(source)
    commit(tree((kind, b"x", target), (b"40000", b"x", tree((b"100644", b"y", blob)))))
    with pytest.raises(UsageError, match="x cannot be checked out: it is a file and a folder at once"):
        ours.materialise(ours.fetch(str(source), "made"), tmp_path / "t", uid=0, gid=0)


@pytest.mark.parametrize("target", [b"", b"a\0b", b"a" * 4096])
def test_a_link_that_no_system_has_is_a_usage_error(ours, source, tmp_path, target):
    _, _, tree, commit = trees_of(source)
    commit(tree((b"120000", b"x", git(source, "hash-object", "-w", "--stdin", stdin=target))))
    with pytest.raises(UsageError, match="no link can have its target"):
        ours.materialise(ours.fetch(str(source), "made"), tmp_path / "t", uid=0, gid=0)


def test_a_name_that_no_folder_takes_is_a_usage_error_of_one_short_line(ours, source, tmp_path):
    blob, _, tree, commit = trees_of(source)
    commit(tree((b"100644", b"x" * 4000, blob)))
    with pytest.raises(UsageError, match="its path is too long") as told:
        ours.materialise(ours.fetch(str(source), "made"), tmp_path / "t", uid=0, gid=0)
    assert len(told.value.line) < 400
    commit(tree((b"100644", b"x" * 256, blob)))
    with pytest.raises(UsageError, match="its path is too long"):
        ours.materialise(ours.fetch(str(source), "made"), tmp_path / "t", uid=0, gid=0)


@pytest.mark.parametrize("time", ["99999999999999999999", "253402300799", "-5", "1e9", ""])
def test_a_commit_of_any_time_can_be_worked_on(ours, source, tmp_path, time):
    raw = f"tree {git(source, 'rev-parse', 'HEAD^{tree}')}\nauthor a <b> 1 +0000\ncommitter a <b> {time} +0000\n\nm\n"
    made = git(source, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw.encode())
    git(source, "update-ref", "refs/heads/made", made)
    base = ours.fetch(str(source), "made")
    ours.materialise(base, tmp_path / "t", uid=os.getuid(), gid=os.getgid())
    (tmp_path / "t/new").write_text("1")
    assert ours.capture(base, tmp_path / "t", keep_as="", message="m").changes


def test_a_pack_of_before_a_power_cut_is_not_taken(ours, source, tmp_path):
    base = ours.fetch(str(source), "main")
    ours.materialise(base, tmp_path / "one", uid=0, gid=0)
    (kept,) = (ours.path / "harness-packs").iterdir()
    assert kept.name == f"{base}-{boot()}", "nothing was flushed to the disk"
    for path in kept.iterdir():
        path.chmod(0o644)
        path.write_bytes(b"")
    kept.rename(kept.with_name(f"{base}-anotherboot"))
    ours.materialise(base, tmp_path / "two", uid=0, gid=0)
    assert git(tmp_path / "two", "fsck", "--no-reflogs") == ""


def test_old_packs_are_dropped(ours, tmp_path):
    for number in range(6):
        base = make(tmp_path / "many", {"n": b"%d" % number})
        ours.fetch(str(tmp_path / "many"), base)
        ours.materialise(base, tmp_path / f"t{number}", uid=os.getuid(), gid=os.getgid())
    assert len([p for p in (ours.path / "harness-packs").iterdir() if p.is_dir()]) == 3
