"""What a workspace costs: `python tests/bench/bench_workspace.py [FILES ...] [--at FOLDER]` (2500 25000 by default).

A work tree is ready when the source was asked again and the tree stands. Three ways to it: the first of its base
(history is packed for it), the next (that is kept), and one that was laid out ahead while the last was in use, which
is what a run gets on a base that an earlier one had, and has targets. Beside them stands the floor: the same files,
empty, made by plain Python in the same place. Exit code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent_harness.delivery import deliver
from agent_harness.workspace import HarnessRepository, spread
from fakes.repos import git

READY_MS = {2500: 300.0, 25000: 2000.0}
CAPTURED_MS = {2500: 500.0}
ROUNDS = 3


def make_source(top: Path, files: int) -> None:
    """A repository of about 21 KB of words a file, packed."""
    dice = random.Random(files)
    words = [f"{dice.getrandbits(40):x}" for _ in range(4000)]
    git(top.parent, "init", "-q", "-b", "main", str(top))
    for number in range(files):
        path = top / f"p{number % 25}" / f"q{number % 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(" ".join(dice.choices(words, k=6)) for _ in range(dice.randint(2, 600))))
    git(top, "add", "-A")
    git(top, "commit", "-qm", "base")
    git(top, "repack", "-adq")


def floor(top: Path, files: int) -> None:
    """Only make that many files."""
    for number in range(100):
        (top / str(number)).mkdir(parents=True)
    for number in range(files):
        os.close(os.open(top / str(number % 100) / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


class Timer:
    """Runs a step a few times and prints the best and the worst."""

    def __init__(self, files: int) -> None:
        self.files = files

    def __call__(self, label, step, *, rounds=1, before=lambda: None):
        spent = []
        for _ in range(rounds):
            before()
            began = time.perf_counter()
            result = step()
            spent.append((time.perf_counter() - began) * 1000)
        more = f" (worst {max(spent):.0f})" if rounds > 1 else ""
        print(f"{self.files:>6} files  {label:<44} {min(spent):>8.0f} ms{more}", flush=True)
        return result, min(spent)


def bench(files: int, top: Path) -> tuple[float, float]:
    """All steps of one size; gives back the milliseconds until a work tree is ready, and until it is captured."""
    timed = Timer(files)
    source, trees = top / "source", top / "trees"
    trees.mkdir()
    spread(trees)  # as the folder of a project's runs is
    tree = trees / "1/tree"

    def clear() -> None:
        nonlocal tree
        shutil.rmtree(tree.parent, ignore_errors=True)
        tree = trees / str(int(tree.parent.name) + 1) / "tree"
        tree.parent.mkdir()

    make_source(source, files)
    ours = HarnessRepository.open(top / "ours.git")
    base, _ = timed("fetch, first", lambda: ours.fetch(str(source), "main"))
    timed("fetch, unchanged", lambda: ours.fetch(str(source), "main"), rounds=5)
    lay = lambda **more: ours.materialise(ours.fetch(str(source), "main"), tree, uid=1000, gid=1000, **more)
    timed("floor: make as many empty files", lambda: floor(tree, files), rounds=ROUNDS, before=clear)
    timed("work tree with git, first of its base", lay, before=clear)
    timed("work tree with git, next", lay, rounds=ROUNDS, before=clear)
    timed("work tree without git", lambda: lay(with_git=False), rounds=ROUNDS, before=clear)

    def ahead() -> None:
        clear()
        ours.lay_ahead(base, uid=1000, gid=1000)
        until = time.monotonic() + 300
        while not list((ours.path / "harness-spares").glob(f"{base}*")):
            assert time.monotonic() < until, "no work tree was laid out ahead"
            time.sleep(0.01)

    timed("one laid out ahead, in the background", ahead)
    _, ready = timed("work tree with git, laid out ahead", lay, rounds=ROUNDS, before=ahead)
    timed("git status inside, first", lambda: git(tree, "status", "--porcelain"))
    capture = lambda: ours.capture(base, tree, keep_as="refs/harness/work/b/1", message="m")
    timed("capture, nothing changed", capture, rounds=ROUNDS)
    for path in list(tree.glob("p*/q*/f*"))[:50]:
        path.write_bytes(b"changed\n")
    (tree / "node_modules").mkdir()
    for number in range(1000):
        (tree / f"node_modules/{number}").touch()
    seen, captured = timed("capture, 50 changed, 1000 ignored", capture, rounds=ROUNDS)
    timed("diff", lambda: ours.diff(base, seen.commit), rounds=ROUNDS)
    drop = lambda: git(source, "update-ref", "-d", "refs/heads/harness/b")
    give = lambda: deliver(ours, str(source), commit=seen.commit, branch="harness/b", expected_old=None)
    timed("deliver", give, rounds=ROUNDS, before=drop)
    return ready, captured


def main() -> int:
    """Print the table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int, nargs="*", default=[2500, 25000])
    parser.add_argument("--at", help="the folder to work in (default: the temporary folder)")
    given = parser.parse_args()
    missed = 0
    for files in given.files:
        with tempfile.TemporaryDirectory(prefix="bench-workspace-", dir=given.at) as top:
            ready, captured = bench(files, Path(top))
        for what, limits, seen in (("ready", READY_MS, ready), ("captured", CAPTURED_MS, captured)):
            if files in limits:
                missed += seen > limits[files]
                print(f"target: {files} files {what} within {limits[files]:.0f} ms; seen {seen:.0f} ms", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
