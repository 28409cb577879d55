"""What a workspace costs: `python tests/bench/bench_workspace.py [FILES ...] [--at FOLDER]` (2500 25000 by default).

Beside the work tree stands the floor: the same files, empty, made by plain Python in the same place. Where making a
file is slow there, nothing that writes files can be fast.
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
from agent_harness.workspace import HarnessRepository
from fakes.repos import git

TARGET_MS = 300.0
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


def bench(files: int, top: Path) -> float:
    """All steps of one size; gives back the milliseconds of a warm work tree."""
    timed = Timer(files)
    source, tree = top / "source", top / "tree"
    make_source(source, files)
    ours = HarnessRepository.open(top / "ours.git")
    base, _ = timed("fetch, first", lambda: ours.fetch(str(source), "main"))
    timed("fetch, unchanged", lambda: ours.fetch(str(source), "main"), rounds=5)
    clear = lambda: shutil.rmtree(tree, ignore_errors=True)
    lay = lambda **more: ours.materialise(base, tree, uid=1000, gid=1000, **more)
    timed("floor: make as many empty files", lambda: floor(tree, files), rounds=ROUNDS, before=clear)
    timed("work tree with git, first of its base", lay, before=clear)
    _, warm = timed("work tree with git, warm", lay, rounds=ROUNDS, before=clear)
    timed("work tree without git", lambda: lay(with_git=False), rounds=ROUNDS, before=clear)
    clear()
    lay()
    timed("git status inside, first", lambda: git(tree, "status", "--porcelain"))
    capture = lambda: ours.capture(base, tree, keep_as="refs/harness/work/b/1", message="m")
    timed("capture, nothing changed", capture, rounds=ROUNDS)
    for path in list(tree.glob("p*/q*/f*"))[:50]:
        path.write_bytes(b"changed\n")
    (tree / "node_modules").mkdir()
    for number in range(1000):
        (tree / f"node_modules/{number}").touch()
    seen, _ = timed("capture, 50 changed, 1000 ignored", capture, rounds=ROUNDS)
    timed("diff", lambda: ours.diff(base, seen.commit), rounds=ROUNDS)
    drop = lambda: git(source, "update-ref", "-d", "refs/heads/harness/b")
    give = lambda: deliver(ours, str(source), commit=seen.commit, branch="harness/b", expected_old=None)
    timed("deliver", give, rounds=ROUNDS, before=drop)
    return warm


def main() -> int:
    """Print the table; 0 whatever the disk's floor is, since that is not ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int, nargs="*", default=[2500, 25000])
    parser.add_argument("--at", help="the folder to work in (default: the temporary folder)")
    given = parser.parse_args()
    for files in given.files:
        with tempfile.TemporaryDirectory(prefix="bench-workspace-", dir=given.at) as top:
            warm = bench(files, Path(top))
        if files == 2500:
            print(f"target: a warm work tree of 2500 files within {TARGET_MS:.0f} ms; seen {warm:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
