import contextlib
import os
import socket
import stat
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_harness.errors import GitFault, UsageError
from agent_harness.stage import remove_tree
from agent_harness.workspace import CaptureLimits, HarnessRepository
from agent_harness.workspace.scan import Scan
from fakes.repos import git, make, snapshot, write

KEEP = "refs/harness/work/item/1"
BASE = {
    "src/app.py": b"print(1)\n",
    "src/data.bin": b"\0\1\2",
    "tool.sh": b"#!/bin/sh\n",
    "link": "src/app.py",
    "crlf.txt": b"a\r\n",
    "build/tracked.o": b"tracked below an ignored folder\n",
    ".gitignore": b"build/\n*.log\n!keep.log\n/only-here\n",
    "deep/.gitignore": b"local\n",
    ".gitattributes": b"*.txt text=auto\n",
}


@pytest.fixture
def ours(tmp_path):
    return HarnessRepository.open(tmp_path / "repository.git")


@pytest.fixture
def base(ours, tmp_path):
    make(tmp_path / "source", BASE)
    return ours.fetch(str(tmp_path / "source"), "main")


@pytest.fixture
def tree(ours, base, tmp_path):
    ours.materialise(base, tmp_path / "tree", uid=os.getuid(), gid=os.getgid())
    return tmp_path / "tree"


@pytest.fixture
def capture(ours, base, tree):
    return lambda **more: ours.capture(base, tree, keep_as=KEEP, message="a change", **more)


def statuses(candidate):
    return {change.shown: change.status for change in candidate.changes}


def test_no_change_is_an_empty_candidate(capture, ours, base):
    seen = capture()
    assert seen.empty
    assert seen.tree == ours.tree_of(base)
    assert ours.kept(KEEP) == seen.commit


def test_everything_that_can_change_is_exact(capture, ours, tree, tmp_path):
    write(
        tree,
        {
            "src/app.py": b"print(2)",
            "src/data.bin": None,
            "link": "tool.sh",
            "crlf.txt": b"a\nb\r\rc",
            "-x\n": b"new",
            b"\xff\xfe": b"\xe4\xf6\xfc\r\n",
            ":(exclude)y": b"",
            "文": b"1",
            "deep/moved.bin": b"\0\1\2",
        },
    )
    (tree / "tool.sh").chmod(0o755)
    seen = capture()
    assert statuses(seen) == {
        "src/app.py": "M",
        "src/data.bin": "D",
        "link": "M",
        "crlf.txt": "M",
        r"-x\n": "A",
        r"\xff\xfe": "A",
        ":(exclude)y": "A",
        "文": "A",
        "deep/moved.bin": "A",
        "tool.sh": "M",
    }
    by = {change.shown: change for change in seen.changes}
    assert (by["src/app.py"].new_size, by["src/app.py"].binary) == (8, False)
    assert (by["src/data.bin"].new_mode, by["src/data.bin"].binary) == ("000000", True)
    assert (by["tool.sh"].old_mode, by["tool.sh"].new_mode) == ("100644", "100755")
    assert seen.refusals == ()
    ours.materialise(seen.commit, tmp_path / "again", uid=os.getuid(), gid=os.getgid())
    assert snapshot(tmp_path / "again") == snapshot(tree)


def test_files_folders_and_links_may_take_each_others_place(capture, tree, ours, tmp_path):
    write(tree, {"src/app.py": None, "src/data.bin": None, "tool.sh": None, "link": None})
    (tree / "src").rmdir()
    write(tree, {"src": b"a file now", "tool.sh/inside": b"a folder now", "link": b"no link now"})
    seen = capture()
    assert statuses(seen)["link"] == "T"
    ours.materialise(seen.commit, tmp_path / "again", uid=os.getuid(), gid=os.getgid())
    assert snapshot(tmp_path / "again") == snapshot(tree)


def test_the_patch_applies_on_a_clean_base(capture, ours, base, tree, tmp_path):
    write(tree, {"img.png": b"\x89PNG\0\r\n" * 99, "src/app.py": b"a\rb", "src/data.bin": b"\0\2", "crlf.txt": None})
    (tree / "tool.sh").chmod(0o755)
    seen = capture()
    ours.materialise(base, tmp_path / "clean", uid=os.getuid(), gid=os.getgid())
    git(tmp_path / "clean", "apply", "--index", "-", stdin=ours.diff(base, seen.commit, "--binary"))
    assert snapshot(tmp_path / "clean") == snapshot(tree)
    assert git(tmp_path / "clean", "write-tree") == seen.tree


def test_the_diff_names_binary_files_and_shows_text(capture, ours, base, tree):
    write(tree, {"src/data.bin": b"\0\2", "src/app.py": b"print(2)\n"})
    text = ours.diff(base, capture().commit)
    assert b"+print(2)\n" in text
    assert b"Binary files a/src/data.bin and b/src/data.bin differ" in text


def test_the_same_work_gives_the_same_commit(capture, tree):
    write(tree, {"new": b"1"})
    assert capture().commit == capture().commit


def test_what_is_ignored_is_left_out_and_told(capture, tree):
    write(
        tree,
        {
            "src/__pycache__/app.cpython-311.pyc": b"1",
            "node_modules/x/y.js": b"1",
            "build/new.o": b"1",
            "build/tracked.o": b"changed\n",
            "a.log": b"1",
            "keep.log": b"1",
            "deep/local": b"1",
            "src/local": b"1",
            "only-here": b"1",
            "src/only-here": b"1",
        },
    )
    seen = capture()
    assert statuses(seen) == {"build/tracked.o": "M", "keep.log": "A", "src/local": "A", "src/only-here": "A"}
    assert seen.ignored == (
        "a.log",
        "build/new.o",
        "deep/local",
        "node_modules",
        "only-here",
        "src/__pycache__",
    )


def test_the_change_cannot_edit_the_rules(capture, tree):
    write(tree, {".gitignore": b"*\n", "evil.py": b"1", "src/.gitignore": b"*\n", "src/evil.py": b"1"})
    seen = capture()
    assert statuses(seen) == {".gitignore": "M", "evil.py": "A", "src/.gitignore": "A", "src/evil.py": "A"}
    assert seen.ignored == ()


def test_special_files_are_refused_and_hang_nothing(capture, tree):
    os.mkfifo(tree / "pipe")
    (tree / "src/app.py").unlink()
    os.mkfifo(tree / "src/app.py")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(tree)
        sock.bind("sock")
        os.chdir(here)
    seen = capture()
    assert {r.path: r.reason for r in seen.refusals} == {
        "pipe": "a named pipe, not a file",
        "sock": "a socket, not a file",
        "src/app.py": "a named pipe, not a file",
    }
    assert not seen.empty


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_refused(capture, tree):
    os.mknod(tree / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert capture().refusals[0].reason == "a device, not a file"


def test_a_tree_that_is_a_link_is_none(ours, base, tree):
    tree.rename(tree.with_name("elsewhere"))
    tree.symlink_to("elsewhere")
    with pytest.raises(UsageError, match="no work tree at"):
        ours.capture(base, tree, keep_as=KEEP, message="m")


def deep(folder, levels):
    """A file below so many folders, each made from the one above it."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("z", dir_fd=fd)
        inner = os.open("z", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_a_very_deep_tree_is_refused_and_can_be_removed(capture, tree):
    deep(tree, 3000)
    seen = capture()
    assert seen.changes == ()
    assert [refusal.reason for refusal in seen.refusals] == ["it lies in more than 200 folders"]
    remove_tree(tree)
    assert not tree.exists()


def test_a_tree_that_is_changed_while_it_is_removed_leads_nowhere_else(tmp_path):
    """By a sandbox that the engine did not end: it puts links in the place of folders that were already looked at."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o750)
    (victim / "keep").write_text("mine")
    for number in range(6):
        tree, away = tmp_path / f"tree-{number}", tmp_path / f"away-{number}"
        away.mkdir()
        for one in range(1500):
            (tree / f"d{one}" / "inner").mkdir(parents=True)
            (tree / f"d{one}" / "keep").write_text("bait")
        names, done = [os.path.join(tree, f"d{one}") for one in range(1500)], threading.Event()

        def swap(names=names, away=away, done=done):
            for at, name in enumerate(names * 3):
                with contextlib.suppress(OSError):
                    os.rename(name, away / str(at))
                    os.symlink(victim, name)
            done.set()

        thread = threading.Thread(target=swap)
        thread.start()
        with contextlib.suppress(OSError):  # it may say so; it may not follow
            remove_tree(tree)
        thread.join()
        assert (victim / "keep").read_text() == "mine" and stat.S_IMODE(victim.stat().st_mode) == 0o750


def test_setuid_is_refused(capture, tree):
    write(tree, {"su": b"1", "sg": b"1"})
    (tree / "su").chmod(0o4755)
    (tree / "sg").chmod(0o2755)
    seen = capture()
    assert [(r.path, "setuid" in r.reason) for r in seen.refusals] == [("sg", True), ("su", True)]
    assert seen.changes == ()


def test_names_that_some_systems_take_for_another_file_are_refused(ours, tmp_path):
    make(tmp_path / "b", {"src/a.py": b"1", "Old": b"", "old": b""})
    base, tree = ours.fetch(str(tmp_path / "b"), "HEAD"), tmp_path / "t2"
    ours.materialise(base, tree, uid=os.getuid(), gid=os.getgid())
    for name in ("src/A.py", "SRC/new.py", "caf\u00e9", "cafe\u0301", "src/b.py", "old.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("2")
    found = ours.capture(base, tree, keep_as="", message="m")
    assert [refusal.path for refusal in found.refusals] == ["SRC/new.py", "café", "src/A.py"]
    assert statuses(found) == {"cafe\u0301": "A", "src/b.py": "A", "old.py": "A"}


def test_nested_repositories_are_refused_and_hide_nothing(capture, tree):
    git(tree / "src", "init", "-q")
    make(tree / "vendor", {"x": b"1"})
    write(tree, {"wt/.git": b"gitdir: /elsewhere\n", "wt/f": b"1", ".GIT/config": b"1", "src/app.py": b"hidden?\n"})
    git(tree, "init", "-q", "--bare", "bare.git")
    seen = capture()
    assert {r.path for r in seen.refusals} == {"src/.git", "vendor/.git", "wt/.git", ".GIT"}
    found = statuses(seen)
    assert found["src/app.py"] == "M"
    assert found["vendor/x"] == found["wt/f"] == found["bare.git/HEAD"] == "A"
    assert not [change for change in seen.changes if change.new_mode == "160000"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc", "src/../../x", ".git/config", "up/../etc"])
def test_links_out_of_the_tree_are_refused(capture, tree, target):
    write(tree, {"up": ".", "src/out": target, "link": target})
    seen = capture()
    assert {"src/out", "link"} >= {r.path for r in seen.refusals} >= {"link"}
    assert not [c for c in seen.changes if c.new_mode == "120000" and c.path != b"up" and c.path != b"src/out"]


def test_a_link_out_that_the_base_has_is_no_change_of_ours(ours, tmp_path):
    make(tmp_path / "s", {"python": "/usr/bin/python3", "b": b"1"})
    base = ours.fetch(str(tmp_path / "s"), "main")
    ours.materialise(base, tmp_path / "t", uid=os.getuid(), gid=os.getgid())
    assert ours.capture(base, tmp_path / "t", keep_as=KEEP, message="m").empty
    write(tmp_path / "t", {"python": "/usr/bin/python2"})
    assert ours.capture(base, tmp_path / "t", keep_as=KEEP, message="m").refusals[0].path == "python"


def test_ceilings(capture, tree):
    (tree / "sparse").touch()
    os.truncate(tree / "sparse", 50 << 30)
    write(tree, {f"many/{n}": b"%d" % n for n in range(20)})
    seen = capture(limits=CaptureLimits(files=10, file_bytes=1000))
    reasons = {r.path: r.reason for r in seen.refusals}
    assert "53687091200 bytes" in reasons["sparse"]
    assert sum("more than 10 new" in reason for reason in reasons.values()) == 10
    assert len(seen.changes) == 10
    tight = capture(limits=CaptureLimits(total_bytes=15))
    assert any("more than 15 bytes" in r.reason for r in tight.refusals)
    assert any("more than 5 names" in r.reason for r in capture(limits=CaptureLimits(names=5)).refusals)


def test_a_large_tracked_file_is_read_but_not_held(ours, tmp_path):
    make(tmp_path / "s", {"big": b"x" * 5000, "other": b"y" * 5000})
    base = ours.fetch(str(tmp_path / "s"), "main")
    ours.materialise(base, tmp_path / "t", uid=os.getuid(), gid=os.getgid())
    small = CaptureLimits(file_bytes=100)
    assert ours.capture(base, tmp_path / "t", keep_as=KEEP, message="m", limits=small).empty
    write(tmp_path / "t", {"big": b"z" * 5000})
    seen = ours.capture(base, tmp_path / "t", keep_as=KEEP, message="m", limits=small)
    assert [r.path for r in seen.refusals] == ["big"]


def test_unreadable_files_and_folders_are_read(capture, tree):
    write(tree, {"shut/inside": b"1", "shut/file": b"2", "src/app.py": b"3"})
    for path, mode in (("shut/file", 0), ("shut", 0), ("src/app.py", 0o044)):
        (tree / path).chmod(mode)
    seen = capture()
    assert statuses(seen) == {"shut/file": "A", "shut/inside": "A", "src/app.py": "M"}
    assert seen.refusals == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_their_owner_reads_them_too_and_others_files_are_refused(tmp_path):
    tmp_path.chmod(0o755)
    write(tmp_path, {"shut/inside": b"1", "file": b"2", "roots": b"3"})
    for path in ("shut/inside", "shut", "file"):
        os.chown(tmp_path / path, 1000, 1000)
    for path in ("shut", "file", "roots"):
        (tmp_path / path).chmod(0)
    top = os.open(tmp_path, os.O_RDONLY)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(1000)
            os.setuid(1000)
            scan = Scan({}, lambda _files, _folders: set(), lambda _data: None, CaptureLimits())
            scan.run(top)
            right = set(scan.entries) == {b"shut/inside", b"file"} and [r.path for r in scan.refusals] == ["roots"]
            os._exit(0 if right else 1)
        os._exit(2)
    os.close(top)
    assert os.waitpid(child, 0)[1] == 0


def test_a_path_deeper_than_any_system_call_takes(capture, tree):
    here = os.open(tree, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    seen = capture()
    assert [r.reason for r in seen.refusals] == ["its path is longer than 2048 bytes"]


def test_no_work_tree(ours, base, tmp_path):
    with pytest.raises(UsageError, match="no work tree"):
        ours.capture(base, tmp_path / "gone", keep_as=KEEP, message="m")
    with pytest.raises(UsageError, match="not a ref of the harness"):
        ours.keep("refs/heads/main", base)


def test_a_racing_writer_gets_no_foreign_bytes_in(ours, base, tree, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"the host's secret\n")
    (tree / "dir").mkdir()
    stop = threading.Event()

    def flip():
        while not stop.is_set():
            for path, target in ((tree / "flip", secret), (tree / "dir" / "inner", tmp_path)):
                path.unlink(missing_ok=True)
                path.symlink_to(target)
                path.unlink()
                path.write_bytes(b"mine\n") if path.name == "flip" else path.mkdir()
                path.unlink() if path.name == "flip" else path.rmdir()

    writer = threading.Thread(target=flip)
    writer.start()
    try:
        seen = [ours.capture(base, tree, keep_as=KEEP, message="m") for _ in range(25)]
    finally:
        stop.set()
        writer.join()
    for candidate in seen:
        for change in candidate.changes:
            assert change.path in {b"flip"}
            assert ours.read(candidate.commit, "flip", 100) in {b"mine\n", b""}


# --- reading back -----------------------------------------------------------------------------------------------


def test_read(ours, base):
    assert ours.read(base, "src/app.py", 9) == b"print(1)\n"
    assert ours.read(base, "src", 9) is None
    assert ours.read(base, "link", 99) is None
    assert ours.read(base, "nope*", 9) is None
    assert ours.read(base, "../x", 9) is None
    with pytest.raises(ValueError, match="more than 8"):
        ours.read(base, "src/app.py", 8)
    assert {e.path for e in ours.paths(base)} == {os.fsencode(name) for name in BASE}


NAMES = st.lists(
    st.binary(min_size=1, max_size=6).filter(
        lambda b: not set(b) & {0, 0x2F} and b not in {b".", b".."} and b"git" not in b.lower()
    ),
    min_size=1,
    max_size=3,
).map(b"/".join)
FILES = st.dictionaries(NAMES, st.tuples(st.binary(max_size=40), st.sampled_from(["file", "program"])), max_size=8)


def fits(files):
    return {p: v for p, v in files.items() if not any(q.startswith(p + b"/") for q in files)}


@settings(max_examples=12, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=FILES.map(fits), new=FILES.map(fits))
def test_any_tree_comes_back_as_it_was(tmp_path_factory, old, new):
    top = tmp_path_factory.mktemp("any")
    ours = HarnessRepository.open(top / "r.git")
    make(top / "empty", {".gitignore": b"!*\n"})  # a built-in rule may name one of these; here all is to come along
    empty = ours.fetch(str(top / "empty"), "main")
    commits = []
    for name, files in (("old", old), ("new", new)):
        (top / name).mkdir()
        for path, (data, kind) in files.items():
            write(top / name, {path: data})
            if kind == "program":
                os.chmod(os.fsencode(top / name) + b"/" + path, 0o755)
        commits.append(ours.capture(empty, top / name, keep_as=KEEP, message=name))
        assert not commits[-1].refusals
    ours.materialise(commits[0].commit, top / "back", uid=os.getuid(), gid=os.getgid())
    assert snapshot(top / "back") == snapshot(top / "old")
    patch = ours.diff(commits[0].commit, commits[1].commit, "--binary")
    if patch:
        git(top / "back", "apply", "--index", "-", stdin=patch)
    assert git(top / "back", "write-tree") == commits[1].tree


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk_of_ours_is_a_fault_and_no_refusal_of_a_file(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m tmpfs '{small}' 2>/dev/null") != 0:
        pytest.skip("mounting is not allowed here")
    try:
        make(tmp_path / "s", {"a": b"1"})
        ours = HarnessRepository.open(small / "r.git")
        base = ours.fetch(str(tmp_path / "s"), "main")
        write(tmp_path / "t", {"a": b"1", "big": os.urandom(3 << 20)})
        with pytest.raises(GitFault, match=r"cannot capture .*No space left"):
            ours.capture(base, tmp_path / "t", keep_as=KEEP, message="m")
        assert ours.kept(KEEP) is None
    finally:
        os.system(f"umount '{small}'")
