"""Work trees laid out ahead: exact, taken once, bounded, and harmless whenever a process is killed."""

# pyright: reportOptionalMemberAccess=false

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from agent_harness.workspace import HarnessRepository
from fakes.repos import git, make, snapshot

ME = {"uid": os.getuid(), "gid": os.getgid()}
FILES = {f"d{n % 7}/e{n % 3}/f{n}": b"%d\n" % n * 50 for n in range(400)} | {"top": b"1", "link": "d1", "run": b"x"}

MAKER = """
import os, sys, pathlib
from agent_harness.workspace import HarnessRepository
ours = HarnessRepository.open(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
n = 0
while True:
    n += 1
    if sys.argv[3] == "take":
        ours.materialise(sys.argv[2], pathlib.Path(f"{sys.argv[4]}-{n}"), uid=os.getuid(), gid=os.getgid())
    ours.lay_ahead(sys.argv[2], uid=os.getuid(), gid=os.getgid())
    if sys.argv[3] == "make":
        input()
"""


@pytest.fixture
def source(tmp_path):
    make(tmp_path / "source", FILES)
    return tmp_path / "source"


@pytest.fixture
def ours(tmp_path):
    made = HarnessRepository.open(tmp_path / "state/repository.git")
    yield made
    made.rest()


@pytest.fixture
def base(ours, source):
    return ours.fetch(str(source), "main")


def spares(ours):
    return sorted(p.name for p in (ours.path / "harness-spares").glob("*"))


def ahead(ours, commit, **owner):
    ours.lay_ahead(commit, **{**ME, **owner})
    until = time.monotonic() + 30
    while not [name for name in spares(ours) if name.startswith(commit)]:
        assert time.monotonic() < until
        time.sleep(0.005)


def inode(ours, name):
    return (ours.path / "harness-spares" / name / "tree/top").stat().st_ino


def exact(tree, source):
    assert snapshot(tree) == snapshot(source)
    assert git(tree, "status", "--porcelain", "--ignored") == ""
    assert git(tree, "fsck", "--no-reflogs") == ""


def test_a_spare_is_the_next_work_tree(ours, source, base, tmp_path):
    ahead(ours, base)
    (name,) = spares(ours)
    there = inode(ours, name)
    ours.materialise(base, tmp_path / "tree", **ME)
    assert (tmp_path / "tree/top").stat().st_ino == there
    assert spares(ours) == []
    assert (tmp_path / "tree").stat().st_mode & 0o777 == 0o755
    git(tmp_path / "tree", "diff-files", "--quiet")  # git's index knows every file as it is, without reading one
    exact(tmp_path / "tree", source)


def test_what_was_left_out_is_told_of_a_spare_too(ours, source, tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    make(source, {"big.bin": pointer, "prose.md": b"version https://git-lfs"})
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(source, "commit", "-qm", "module")
    commit = ours.fetch(str(source), "main")
    plain = ours.materialise(commit, tmp_path / "plain", **ME)
    ahead(ours, commit)
    assert ours.materialise(commit, tmp_path / "tree", **ME) == plain
    assert (plain.submodules, plain.pointers) == (("module",), ("big.bin",))
    assert spares(ours) == []


def test_an_empty_folder_keeps_its_inode(ours, source, base, tmp_path):
    ahead(ours, base)
    (tmp_path / "tree").mkdir()
    there = (tmp_path / "tree").stat().st_ino
    ours.materialise(base, tmp_path / "tree", **ME)
    assert (tmp_path / "tree").stat().st_ino == there, "a sandbox may wait on it"
    exact(tmp_path / "tree", source)


def test_there_is_one_and_it_is_of_the_newest_base(ours, source, base):
    ahead(ours, base)
    ahead(ours, base)
    assert len(spares(ours)) == 1
    newer = make(source, {"later": b"1"})
    ahead(ours, ours.fetch(str(source), "main"))
    assert [name[:40] for name in spares(ours)] == [newer]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_spare_is_its_owners_alone(ours, base, tmp_path):
    ahead(ours, base, uid=1234, gid=1234)
    (name,) = spares(ours)
    ours.materialise(base, tmp_path / "tree", **ME)
    assert (tmp_path / "tree/top").stat().st_uid == ME["uid"]
    assert spares(ours) == [name]
    for folder in (ours.path, ours.path / "harness-spares", ours.path / "harness-spares" / name):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_one_from_before_a_power_cut_is_not_believed(ours, base, tmp_path):
    ahead(ours, base)
    (name,) = spares(ours)
    old = ours.path / "harness-spares" / (name[:-32] + "0" * 32)
    (ours.path / "harness-spares" / name).rename(old)
    ours.materialise(base, tmp_path / "tree", **ME)
    assert spares(ours) == [old.name]
    ours.lay_ahead(base, **ME)
    until = time.monotonic() + 30
    while spares(ours) != [name]:
        assert time.monotonic() < until


def test_many_takers_get_it_once(ours, source, base, tmp_path):
    ahead(ours, base)
    start, tree = MAKER.split("print", 1)[0], "ours.materialise(sys.argv[2], pathlib.Path(sys.argv[3])"
    code = f"{start}sys.stdin.readline()\n{tree}, uid=os.getuid(), gid=os.getgid())"
    there = inode(ours, spares(ours)[0])
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(ours.path), base, str(tmp_path / f"t{n}")], stdin=subprocess.PIPE
        )
        for n in range(4)
    ]
    for taker in takers:
        taker.stdin.write(b"\n")
        taker.stdin.close()
    assert [taker.wait(60) for taker in takers] == [0] * 4
    assert [(tmp_path / f"t{n}/top").stat().st_ino for n in range(4)].count(there) == 1
    for n in range(4):
        exact(tmp_path / f"t{n}", source)


def test_rest_gives_up_and_leaves_nothing(ours, source, tmp_path):
    commit = make(source, {f"more/{n}": b"x" * 2000 for n in range(3000)})
    ours.fetch(str(source), "main")
    ours.lay_ahead(commit, **ME)
    ours.rest()
    assert not [name for name in spares(ours) if name.startswith("new-")]
    ahead(ours, commit)
    ours.materialise(commit, tmp_path / "tree", **ME)
    exact(tmp_path / "tree", source)


@pytest.mark.parametrize("doing", ["make", "take"])
def test_a_kill_at_any_moment_leaves_nothing_wrong(ours, source, base, tmp_path, doing):
    dice = random.Random(doing)
    for n in range(8):
        out = tmp_path / f"killed-{n}"
        args = [sys.executable, "-c", MAKER, str(ours.path), base, doing, str(out)]
        with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            worker.stdout.readline()
            time.sleep(dice.uniform(0, 0.12))
            worker.send_signal(signal.SIGKILL)
        until = time.monotonic() + 10  # a git that was just being started holds the lock a moment longer
        HarnessRepository.open(ours.path)
        while [name for name in spares(ours) if name.startswith("new-")]:
            assert time.monotonic() < until
            HarnessRepository.open(ours.path)
        assert len(spares(ours)) <= 1
        ours.materialise(base, tmp_path / f"tree-{n}", **ME)
        exact(tmp_path / f"tree-{n}", source)


def test_what_is_being_made_is_not_swept(ours, base):
    new = ours.path / "harness-spares/new-x"
    new.mkdir(parents=True)
    holder = subprocess.Popen(
        ["flock", str(new), "-c", "echo held; exec sleep 60"], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        holder.stdout.readline()
        HarnessRepository.open(ours.path)
        assert new.exists()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    late = time.monotonic() + 10
    # the killed `sleep` holds the lock until the kernel is done with it
    while new.exists() and time.monotonic() < late:
        HarnessRepository.open(ours.path)
    assert not new.exists()


def test_a_spare_may_be_asked_for_and_taken_by_several_threads(ours, base, source, tmp_path):
    """A run lays its trees while its checks lay theirs."""
    faults = []

    def work(number):
        try:
            for turn in range(6):
                ours.lay_ahead(base, uid=os.getuid(), gid=os.getgid())
                ours.materialise(base, tmp_path / f"t{number}-{turn}", uid=os.getuid(), gid=os.getgid())
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they meet in every place
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    ours.rest()
    assert faults == []
    exact(tmp_path / "t0-5", source)
