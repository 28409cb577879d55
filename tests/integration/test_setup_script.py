"""Set-up's own decisions, on a copy of the script in a folder of its own with stand-ins on PATH; the real set-up ran
before these tests did, or they would not be running."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def setup(tmp_path) -> ModuleType:
    """The script as a module whose checkout is a temporary folder."""
    for name in ("scripts/setup.py", "requirements.txt", "requirements-check.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    spec = importlib.util.spec_from_file_location("setup_script", tmp_path / "scripts/setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Callable[[str, str], Path]:
    """Puts a program before everything else on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, script: str) -> Path:
        (folder / name).write_text(textwrap.dedent(script))
        (folder / name).chmod(0o755)
        return folder / name

    put("sudo", '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n')
    return put


def answer(path: Path, reply: bytes) -> None:
    """Serve one connection at the socket."""
    line = socket.socket(socket.AF_UNIX)
    line.bind(str(path))
    line.listen()

    def serve() -> None:
        with line, line.accept()[0] as peer:
            peer.recv(100)
            peer.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()


def test_an_engine_is_what_answers_a_ping(setup, tmp_path):
    assert setup.engine_state(str(tmp_path / "nothing")) == "no"
    answer(tmp_path / "good", b"HTTP/1.0 200 OK\r\n\r\nOK")
    answer(tmp_path / "bad", b"HTTP/1.0 500 Internal Server Error\r\n\r\n")
    assert setup.engine_state(str(tmp_path / "good")) == "yes"
    assert setup.engine_state(str(tmp_path / "bad")) == "no"


def test_an_engine_of_the_users_choice_is_theirs_to_start(setup, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    assert setup.chosen_engine() == ""
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "far"}))
    assert setup.chosen_engine() == "docker context far"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert setup.chosen_engine() == ""
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:1")
    assert setup.chosen_engine() == "DOCKER_HOST=tcp://far:1"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{setup.SOCKET}")
    assert setup.chosen_engine() == ""


def test_apt_gets_fresh_lists_only_when_the_old_ones_fail(setup, stand_in, tmp_path, capsys):
    log = tmp_path / "calls"
    fake = f"""\
        #!/bin/sh
        echo "$DEBIAN_FRONTEND $*" >>{log}
        case "$*" in *update) touch {tmp_path}/fresh ;; *) test -e {tmp_path}/fresh || {{ echo 'no such package'; exit 100; }} ;; esac
        """
    stand_in("apt-get", fake)
    setup.apt_install(["docker.io"], "no Docker engine is installed")
    install = "noninteractive install -y --no-install-recommends docker.io"
    assert log.read_text().splitlines() == [install, "noninteractive update", install]
    assert "no Docker engine is installed: installing docker.io" in capsys.readouterr().err
    setup.apt_install(["docker.io"], "again")
    assert log.read_text().splitlines()[3:] == [install]


def test_apt_waits_while_another_program_holds_its_locks(setup, stand_in, tmp_path, capsys):
    """A machine that has just been started updates its own package lists."""
    held = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
    stand_in(
        "apt-get", f"#!/bin/sh\n[ -e {tmp_path}/free ] || {{ touch {tmp_path}/free; echo '{held}' >&2; exit 100; }}\n"
    )
    setup.APT_PAUSE_S = 0
    setup.apt_install(["docker.io"], "no Docker engine is installed")
    said = capsys.readouterr().err
    assert "another program is at the packages; waiting for it" in said
    assert "apt-get update" not in said
    (tmp_path / "free").unlink()
    setup.APT_WAIT_S = -1
    with pytest.raises(setup.Refused, match="It is held by process 7"):
        stand_in("apt-get", f"#!/bin/sh\necho '{held}' >&2; exit 100\n")
        setup.apt_install(["docker.io"], "no Docker engine is installed")


def test_apt_that_fails_says_why(setup, stand_in):
    stand_in("apt-get", "#!/bin/sh\necho 'E: held broken packages' >&2; exit 100\n")
    with pytest.raises(setup.Refused, match="held broken packages") as refused:
        setup.apt_install(["docker.io"], "no Docker engine is installed")
    assert refused.value.code == 3


def as_nobody(act: Callable[[], object]) -> str:
    """What this printed or was refused with, for somebody who is not root, whoever runs the tests."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.setsid()  # no terminal to ask on
            os.dup2(write, 1)
            with os.fdopen(os.dup(write), "w", buffering=1) as said, contextlib.redirect_stderr(said):
                act()
        except BaseException as fault:
            os.write(write, f"{getattr(fault, 'code', type(fault).__name__)} {fault}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        line = said.read()
    os.waitpid(child, 0)
    return line


def test_without_root_and_sudo_one_line_says_what_is_missing(setup, stand_in):
    stand_in("apt-get", "#!/bin/sh\nexit 0\n")
    stand_in("sudo", "#!/bin/sh\nexit 1\n")
    line = as_nobody(lambda: setup.apt_install(["docker.io"], "no Docker engine is installed"))
    assert line.startswith("2 no Docker engine is installed: `apt-get install docker.io` is needed; that needs root")
    assert "\n" not in line


@pytest.fixture
def denied(setup) -> Iterator[Path]:
    """The engine's socket, of a group that nobody here is in, where everybody can see it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another group")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        setup.SOCKET = f"{folder}/sock"
        Path(setup.SOCKET).touch()
        os.chown(setup.SOCKET, 0, 4321)
        yield Path(folder)


def test_somebody_with_sudo_goes_on_in_the_group_of_the_engines_socket(setup, denied, monkeypatch):
    """For this once, with the same words and home folder."""
    (denied / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] && exit 0\necho "sudo $*"\n')
    (denied / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{denied}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", "/home/of/mine")
    said = as_nobody(setup.join_engine_group)
    assert "denies nobody its socket" in said
    assert "`sudo usermod -aG docker nobody`" in said
    assert "sudo -E setpriv --reuid=65534 --regid=65534 --groups=4321 env HOME=/home/of/mine PATH=" in said
    assert said.strip().endswith(" ".join([sys.executable, *sys.argv]))


def test_who_is_denied_in_the_group_itself_is_told_so(setup, denied):
    os.chown(setup.SOCKET, 0, 0)
    said = as_nobody(setup.join_engine_group)
    assert said.startswith("2 the Docker engine denies nobody its socket")
    assert said.endswith("a new login, or make by sudo")


FAKE_DOCKERD = f"""\
    #!{sys.executable}
    import os, socket, sys
    print("asked for", sys.argv[1:], flush=True)
    if "--bridge=none" not in sys.argv:
        sys.exit("failed to start daemon: no iptables")
    line = socket.socket(socket.AF_UNIX)
    line.bind(os.environ["FAKE_SOCKET"])
    line.listen()
    line.settimeout(20)
    with line.accept()[0] as peer:
        peer.recv(100)
        peer.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nOK")
    """


def test_a_dockerd_that_cannot_make_its_network_starts_without_one(setup, stand_in, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_SOCKET", str(tmp_path / "sock"))
    stand_in("dockerd", FAKE_DOCKERD)
    log = tmp_path / "dockerd.log"
    log.write_text(f"of an earlier day\n{setup.DOCKERD_ENDED} (1)\n")
    setup.start_dockerd(log, str(tmp_path / "sock"))
    said = capsys.readouterr().err
    assert "dockerd did not start" in said
    assert "no iptables" in said
    assert "starting dockerd --iptables=false" in said
    assert log.read_text().startswith("of an earlier day\n")


def test_a_dockerd_that_cannot_start_at_all_is_said(setup, stand_in, tmp_path):
    stand_in("dockerd", "#!/bin/sh\necho 'no kernel support'; exit 1\n")
    with pytest.raises(setup.Refused, match=r"does not start on this machine: read .*dockerd.log"):
        setup.start_dockerd(tmp_path / "dockerd.log", str(tmp_path / "sock"))


def test_the_environment_is_made_again_only_for_a_reason(setup):
    assert setup.stamped() == {}
    want = setup.wanted_stamp(check=False)
    setup.STAMP.parent.mkdir()
    setup.stamp(want)
    assert setup.stamped() == {}, "no python in it"
    (setup.VENV / "bin").mkdir()
    (setup.VENV / "bin/python").symlink_to(sys.executable)
    assert setup.stamped() == want
    before = setup.STAMP.stat().st_mtime_ns
    setup.make_environment(check=False)
    assert setup.STAMP.stat().st_mtime_ns == before
    (setup.ROOT / "requirements.txt").write_text("# moved\n")
    assert setup.wanted_stamp(check=False) != want
    assert setup.wanted_stamp(check=True)["check"] != ""


def test_a_failing_install_names_the_step_and_is_tried_again(setup):
    python = setup.VENV / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'the index does not answer'; exit 1\n")
    python.chmod(0o755)
    setup.stamp({"at": setup.wanted_stamp(check=False)["at"]})
    with pytest.raises(setup.Refused, match=r"ended with 1: the index does not answer .*pip-locked.log") as refused:
        setup.make_environment(check=False)
    assert refused.value.code == 3
    assert setup.stamped().keys() == {"at"}, "the next set-up goes on from here"


def test_two_set_ups_take_turns(setup):
    order = []
    with setup.alone():
        second = threading.Thread(
            target=lambda: [order.append("waits"), setup.alone().__enter__(), order.append("runs")]
        )
        second.start()
        time.sleep(0.3)
        order.append("first ends")
    second.join(10)
    assert order == ["waits", "first ends", "runs"]


def test_a_second_set_up_takes_seconds():
    """This very checkout, where set-up made the environment."""
    stamp = ROOT / ".venv/setup-stamp.json"
    if not stamp.exists() or Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("this environment was not made by set-up")
    began = time.monotonic()
    words = [sys.executable, ROOT / "scripts/setup.py", "sh", "-c", "echo and then this; exit 7"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "and then this\n"), done.stderr
    assert "making .venv" not in done.stderr
    assert time.monotonic() - began < 5
