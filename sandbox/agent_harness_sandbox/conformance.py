"""The suite that any sandbox must pass, whatever it is made of.

In a test module: `from agent_harness_sandbox.conformance import *`, and a fixture `make_sandbox` that gives a
`MakeSandbox` and closes what it made. Each function is one promise; nothing here knows how a sandbox is built.
What an attacker tries is in attacks.py, to be imported beside it.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_harness.errors import SandboxLost
from agent_harness.ports import Sandbox
from agent_harness.types import Command, CommandEnd, CommandResult, Mode


@dataclass(frozen=True, slots=True)
class Box:
    """A started sandbox and the host's folder that it sees as its workspace."""

    sandbox: Sandbox
    tree: Path
    uid: int

    def run(self, script: str, timeout_s: float = 30.0, **more: Any) -> CommandResult:
        """Run a script."""
        return self.sandbox.execute(Command(script, timeout_s=timeout_s, **more))

    def text(self, script: str, **more: Any) -> str:
        """What a script that must succeed prints."""
        result = self.run(script, **more)
        shown = (result.head + result.tail).decode("utf-8", "replace").strip()
        assert result.ok, (result.end, result.exit_code, shown)
        return shown

    def alive(self) -> None:
        """The next command still answers."""
        assert self.text("echo alive") == "alive"


MakeSandbox = Callable[..., Box]
"""Starts a sandbox and gives a box that its maker closes. `mode` is Mode.RW unless said; the workspace holds `files`
(bytes by path), owned by the user inside; every other argument goes into the spec."""


LEFT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 77' || true"
PYTHON = "${PYTHON:-python3}"
"""For the probes inside; an image that hides it from the exec server names it in this variable."""
REPOSITORY = "git init -q . && echo 1 >f && git add f && git commit -qm one && echo 2 >f && git commit -qam two"
# --- how commands end ---------------------------------------------------------------------------------------


def test_exit_codes_and_signals_are_the_commands_own(make_sandbox: MakeSandbox) -> None:
    """Also for what breaks a shell: a bare exit, an unbalanced quote, a signal to itself."""
    box = make_sandbox()
    assert (box.run("exit 3").end, box.run("exit 3").exit_code) == (CommandEnd.EXITED, 3)
    assert box.run("echo 'never closed").exit_code not in {0, 3}
    killed = box.run("kill -9 $$")
    assert (killed.end, killed.exit_code) == (CommandEnd.SIGNALLED, 137)
    assert box.run("no-such-program-here").exit_code == 127
    box.alive()


def test_each_command_starts_afresh(make_sandbox: MakeSandbox) -> None:
    """Folder, variables and options do not carry over; each may name its own, and all have those of the spec."""
    box = make_sandbox(files={"inner/x": b""}, env={"GIVEN": "yes"})
    assert box.text("echo $GIVEN") == "yes"
    box.run("cd /; export LEFT=1; set -e")
    assert box.text("pwd; echo -n ${LEFT:-none}; shopt -q login_shell || echo ' plain'") == "/workspace\nnone plain"
    assert box.text("pwd; echo $OWN", workdir="/workspace/inner", env={"OWN": "a b"}) == "/workspace/inner\na b"
    gone = box.run("true", workdir="/workspace/no-such")
    assert (gone.end, gone.exit_code) == (CommandEnd.EXITED, 126)
    assert b"no-such" in gone.head


def test_a_deadline_ends_everything_the_command_started(make_sandbox: MakeSandbox) -> None:
    """Busy loops, children that ignore TERM, grandchildren, other sessions, stopped ones (cases 1, 2)."""
    box = make_sandbox()
    begun = time.monotonic()
    script = (
        "trap '' TERM HUP; setsid sleep 77 & (trap '' TERM; sleep 77 & kill -STOP $!) & echo said; while :; do :; done"
    )
    result = box.run(script, timeout_s=1)
    assert (result.end, result.head) == (CommandEnd.TIMEOUT, b"said\n")
    assert 1 <= result.seconds < 4
    assert time.monotonic() - begun < 6
    assert box.text(LEFT) == "0"


def test_silence_has_its_own_limit(make_sandbox: MakeSandbox) -> None:
    """A quiet command may be quiet for as long as it was given, and no longer (case 4)."""
    box = make_sandbox()
    assert box.text("sleep 2.5; echo ok", timeout_s=10) == "ok"
    assert box.run("echo x; sleep 77", idle_s=0.5).end is CommandEnd.IDLE
    assert box.text("for i in 1 2 3 4; do echo $i; sleep 0.3; done", idle_s=1).endswith("4")


def test_what_stays_in_the_background_does_not_hold_the_result(make_sandbox: MakeSandbox) -> None:
    """It returns when the command ends, not when its output closes, and leaves nothing running."""
    box = make_sandbox()
    result = box.run("sleep 77 & setsid nohup sleep 77 & (while :; do echo x >>/workspace/noise; done) & echo up")
    assert (result.end, result.head) == (CommandEnd.EXITED, b"up\n")
    assert result.seconds < 2
    size = os.path.getsize(box.tree / "noise") if (box.tree / "noise").exists() else 0  # noqa: PTH202
    assert box.text(LEFT) == "0"
    time.sleep(0.2)
    assert not size or (box.tree / "noise").stat().st_size == size


def test_nothing_waits_for_a_person(make_sandbox: MakeSandbox) -> None:
    """No input, no terminal, editors that fail (case 10)."""
    box = make_sandbox()
    assert box.text("cat; test ! -t 1 && echo none", timeout_s=5) == "none"
    rebase = box.run(f"{REPOSITORY} && git rebase -i HEAD~1", timeout_s=10)
    assert (rebase.end, rebase.exit_code != 0) == (CommandEnd.EXITED, True)
    assert box.run("git commit --amend", timeout_s=10).exit_code != 0


# --- output -------------------------------------------------------------------------------------------------


def test_output_is_cut_only_past_the_cap_and_says_so(make_sandbox: MakeSandbox) -> None:
    """Exactly the cap is whole; one more is cut, counted, and kept inside (cases 17, 22, 23)."""
    box = make_sandbox()
    whole = box.run("head -c 1000 /dev/zero", keep=1000)
    assert (whole.head, whole.cut_bytes, whole.saved_to) == (bytes(1000), 0, "")
    kept = box.run("head -c 1000 /dev/zero", keep=1000, save=999)
    assert (kept.head, kept.cut_bytes, box.text(f"stat -c %s {kept.saved_to}")) == (bytes(1000), 0, "1000")
    over = box.run("head -c 1001 /dev/zero", keep=1000)
    assert (over.total_bytes, over.cut_bytes, len(over.head)) == (1001, 1, 200)
    script = "for i in $(seq 5000); do echo test_$i PASSED; [ $i != 2500 ] || echo needle; done"
    log = box.run(f"{script}; echo '1 failed, 4999 passed'", keep=4000)
    assert b"1 failed, 4999 passed" in log.tail
    assert b"needle" not in log.head + log.tail
    assert len(log.tail) > 3 * len(log.head) > 0
    assert box.text(f"grep -n needle {log.saved_to}") == "2501:needle"
    assert int(box.text(f"stat -c %s {log.saved_to}")) == log.total_bytes


def test_output_is_bytes_in_order_of_arrival(make_sandbox: MakeSandbox) -> None:
    """Both streams in one, nothing translated (cases 20, 26)."""
    box = make_sandbox()
    mixed = box.text("for i in $(seq 200); do echo o$i; echo e$i >&2; done").split()
    assert mixed == [f"{stream}{i}" for i in range(1, 201) for stream in "oe"]
    assert box.run(r"printf 'a\0b\001\377\r\n'").head == b"a\0b\x01\xff\r\n"
    box.run(r"touch $'\xff.txt' $'\n--x'")
    assert box.run("ls -A --quoting-style=literal").head.splitlines()[-1] == b"\xff.txt"


def test_a_flood_costs_the_harness_nothing(make_sandbox: MakeSandbox) -> None:
    """Counted to the end, a little kept (case 16)."""
    box = make_sandbox()
    box.alive()
    before = _resident()
    result = box.run("yes | head -c 600000000; echo; echo end", timeout_s=60)
    assert result.total_bytes == 600_000_005
    assert result.tail.endswith(b"end\n")
    assert _resident() - before < 50 << 20
    assert len(result.head) + len(result.tail) <= 64 << 10
    box.alive()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_scripts_of_any_length_and_content(make_sandbox: MakeSandbox) -> None:
    """Longer than the kernel takes for an argument; a zero byte is an error of the command (not of the sandbox)."""
    box = make_sandbox()
    assert box.text(f"x='{'y' * 600_000}'\necho ${{#x}}\nls /proc/self/fd | wc -l") == "600000\n4"
    assert box.run("# " + "z" * 200_000 + "\nexit 7").exit_code == 7
    assert box.run("echo a\0b").end is CommandEnd.EXITED
    assert box.run("echo -n '\udcff'").head == b"\xff"
    box.alive()


# --- files --------------------------------------------------------------------------------------------------


def test_files_go_both_ways_unchanged(make_sandbox: MakeSandbox) -> None:
    """Large ones too, modes kept, folders made, owned by the user inside (cases 25, 98)."""
    box = make_sandbox(files={"run.sh": b"#!/bin/sh\n"})
    for round_ in range(3):
        data = random.Random(round_).randbytes(24 << 20)  # noqa: S311
        box.sandbox.write_file("deep/er/blob", data)
        same = box.sandbox.read_file("/workspace/deep/er/blob", 24 << 20) == data
        assert same
    (box.tree / "run.sh").chmod(0o755)
    box.sandbox.write_file("run.sh", b"#!/bin/sh\necho crlf\r\n")
    found = (box.tree / "run.sh").stat()
    assert (found.st_mode & 0o777, (box.tree / "run.sh").read_bytes()) == (0o755, b"#!/bin/sh\necho crlf\r\n")
    assert (box.tree / "deep/er/blob").stat().st_uid == box.uid
    assert sorted(path.name for path in box.tree.iterdir()) == ["deep", "run.sh"]
    box.text("echo made >by-command; mkdir d")
    assert (box.tree / "by-command").stat().st_uid == box.uid


OUTSIDE = ["/etc/passwd", "../etc/passwd", "", ".", "/workspace", "a\0b", "\ud800"]
SPECIAL = ["out", "dir/passwd", "fifo", "sub", "big"]


@pytest.mark.parametrize("path", [*OUTSIDE, *SPECIAL])
def test_no_file_beyond_the_workspace(make_sandbox: MakeSandbox, path: str) -> None:
    """No link is followed, nothing special is opened, nothing larger than asked is read."""
    box = make_sandbox()
    box.text("ln -s /etc/passwd out; ln -s /etc dir; mkfifo fifo; mkdir sub; truncate -s 1G big")
    with pytest.raises((ValueError, FileNotFoundError) if path == "\ud800" else ValueError):
        box.sandbox.read_file(path, 1 << 20)
    if path != "big":
        with pytest.raises(ValueError, match=r"."):
            box.sandbox.write_file(path, b"x")
    with pytest.raises(FileNotFoundError):
        box.sandbox.read_file("no/such", 10)
    box.alive()


# --- limits -------------------------------------------------------------------------------------------------


def test_memory_processes_and_space_end_the_command_alone(make_sandbox: MakeSandbox) -> None:
    """Close to the limits of a small sandbox (cases 28, 34, 35); bombs of every kind are in attacks.toml."""
    box = make_sandbox(memory=320 << 20, tmp_size=64 << 20, pids=128)
    assert box.run(f"{PYTHON} -c 'x=bytearray(10**9)'").end is CommandEnd.OUT_OF_MEMORY
    box.run("for i in $(seq 90); do (sleep 0.0$i &) ; done; sleep 0.5", timeout_s=20)
    assert box.text("grep -l '^State:.Z' /proc/[0-9]*/status | wc -l") == "0"
    full = box.run(
        "head -c 1G /dev/zero >/tmp/fill; head -c 1G /dev/zero >/scratch/fill; df /tmp >&2; exit 9", timeout_s=60
    )
    assert (full.end, full.exit_code) == (CommandEnd.EXITED, 9)
    flood = box.run("head -c 1000000 /dev/zero", keep=1000)
    assert (flood.cut_bytes, flood.ok) == (999_000, True)
    box.alive()


def test_room_to_build_and_run(make_sandbox: MakeSandbox) -> None:
    """The temporary places can hold programs, HOME exists, the image's PATH is kept (case 43)."""
    for mode in (Mode.RW, Mode.RO):
        box = make_sandbox(mode)
        for place in ("/tmp", "/scratch", "$HOME"):  # noqa: S108
            assert box.text(f"printf '#!/bin/sh\\necho ran\\n' >{place}/p && chmod +x {place}/p && {place}/p") == "ran"
        assert box.text(f"type -P git bash {PYTHON} | wc -l") == "3"
        assert box.text(
            f"git config user.name; {PYTHON} -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'"
        )


# --- walls --------------------------------------------------------------------------------------------------


def test_read_only_holds_for_the_harness_too(make_sandbox: MakeSandbox) -> None:
    """Also where the harness writes (case 104); every way of a command's is in attacks.toml."""
    box = make_sandbox(files={"f": b"1\n", "d/g": b"2\n"}, mode=Mode.RO)
    before = digest(box.tree)
    with pytest.raises(PermissionError):
        box.sandbox.write_file("f", b"x")
    with pytest.raises(PermissionError):
        box.sandbox.write_file("new/file", b"x")
    assert box.sandbox.read_file("d/g", 10) == b"2\n"
    assert digest(box.tree) == before


def test_the_sandbox_itself_leaves_no_trace(make_sandbox: MakeSandbox) -> None:
    """Starting, probing and running puts nothing into the tree (case 106)."""
    box = make_sandbox(files={"m.py": b"x = 1\n", "test_m.py": b"import m\ndef test(): assert m.x == 1\n"})
    before = digest(box.tree)
    box.alive()
    box.text(f"{PYTHON} -c 'import m, test_m'")
    assert digest(box.tree) == before


def digest(tree: Path) -> str:
    """Names, modes, owners, times and contents of a tree."""
    lines = []
    for path in sorted(tree.rglob("*")):
        found = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        lines.append(repr((str(path.relative_to(tree)), found.st_mode, found.st_uid, found.st_mtime_ns, data)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# --- life ---------------------------------------------------------------------------------------------------


def test_one_sandbox_may_be_used_from_several_threads(make_sandbox: MakeSandbox) -> None:
    """They take turns and each gets its own answer (case 38)."""
    box = make_sandbox()
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: [box.text(f"echo {number}-{i}") for i in range(15)], range(8)))
    assert said == [[f"{number}-{i}" for i in range(15)] for number in range(8)]


def test_a_closed_sandbox_is_lost_not_failed(make_sandbox: MakeSandbox) -> None:
    """Closing ends a running command as lost; closing again is nothing; using it afterwards is lost too."""
    box = make_sandbox()
    box.alive()
    threading.Timer(0.5, box.sandbox.close).start()
    begun = time.monotonic()
    with pytest.raises(SandboxLost):
        box.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 5
    box.sandbox.close()
    for use in (box.alive, lambda: box.sandbox.read_file("x", 1), lambda: box.sandbox.write_file("x", b"")):
        with pytest.raises(SandboxLost):
            use()
    assert box.sandbox.describe()["mode"] == "rw"
