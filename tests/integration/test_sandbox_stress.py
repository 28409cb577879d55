"""Many commands and many sandboxes, ended at random moments: every answer its own, nothing left behind.

A small version runs always; `AGENT_HARNESS_STRESS=1` runs the whole of it, and an engine of its own that is restarted."""

import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from agent_harness.errors import HarnessError, SandboxLost
from agent_harness.types import CommandEnd
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.image import OWN_IMAGE
from agent_harness_sandbox.owner import LABEL, Owner
from agent_harness_sandbox.removal import BACKGROUND
from sandboxes import Factory

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
FULL = os.environ.get("AGENT_HARNESS_STRESS") == "1"
COMMANDS, SANDBOXES = (500, 50) if FULL else (60, 6)
SEED = int(os.environ.get("AGENT_HARNESS_STRESS_SEED", "7"))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def left():
    """This process's containers after everything closed was taken away."""
    assert BACKGROUND.wait(60)
    with contextlib.closing(connect()) as client:
        return client.api.containers(all=True, filters={"label": f"{LABEL}={Owner.current()}"})


def answers(token):
    return lambda result: result.head.decode().split() == [token]


def shapes(rng, token):
    """A script, its deadline, and what must hold of its result; every script's output is its own token."""
    code, size = rng.randrange(128), rng.randrange(200_000)
    quick = [
        (f"echo {token}", lambda r: r.ok),
        (f"echo {token}; exit {code}", lambda r: (r.end, r.exit_code) == (CommandEnd.EXITED, code)),
        (f"(sleep 0.0{rng.randrange(9)}; echo {token}) & wait", lambda r: r.ok),
        (
            f"setsid bash -c 'sleep 5; echo STALE' & (trap '' TERM; sleep 0.3; echo STALE) & echo {token}",
            lambda r: r.ok,
        ),
        (f"echo {token}; kill -9 $$", lambda r: (r.end, r.exit_code) == (CommandEnd.SIGNALLED, 137)),
        (f"echo {token} >&2; kill -TERM $$", lambda r: (r.end, r.exit_code) == (CommandEnd.SIGNALLED, 143)),
        (f"echo {token}; # {'x' * size}", lambda r: r.ok),
        (f"for i in $(seq 30); do (true &); done; echo {token}", lambda r: r.ok),
    ]
    slow = [
        (f"echo {token}; sleep 60", lambda r: r.end is CommandEnd.TIMEOUT),
        (f"trap '' TERM INT HUP; echo {token}; while :; do :; done", lambda r: r.end is CommandEnd.TIMEOUT),
        (f"echo {token}; exec setsid --wait sleep 60", lambda r: r.end is CommandEnd.TIMEOUT),
    ]
    if rng.random() < 0.15:
        script, holds = rng.choice(slow)
        return script, rng.uniform(0.3, 0.9), lambda r: holds(r) and answers(token)(r)
    script, holds = rng.choice(quick)
    return script, 30.0, lambda r: holds(r) and answers(token)(r)


def flood(rng, token):
    """A long output: every line carries the token, cut or not."""
    lines = rng.randrange(2_000, 60_000)
    script = f"for ((i = 0; i < {lines}; i++)); do echo {token}; done"

    def holds(result):
        whole = result.total_bytes == lines * (len(token) + 1) and result.ok
        line = f"{token}\n".encode()
        ends = result.head == (line * lines)[: len(result.head)] and (line * lines).endswith(result.tail)
        return whole and ends and bool(result.saved_to) == bool(result.cut_bytes)

    return script, 60.0, holds


@pytest.fixture(params=["python3", "lent python3"])
def way(request):
    """Changes of a spec that bring this way of executing."""
    if request.param == "python3":
        yield {}
        return
    tag = f"sandbox-test-stress:{os.getpid()}"
    with contextlib.closing(connect()) as client:
        text = f"FROM {OWN_IMAGE}\nUSER 0\nRUN rm /usr/bin/python3*\n"
        client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True, network_mode="none")
        yield {"image": tag}
        client.images.remove(tag, force=True)


def test_commands_of_every_shape_answer_for_themselves_alone(way):
    rng = random.Random(SEED)
    factory = Factory()
    try:
        boxes = [factory(**way) for _ in range(2)]
        for box in boxes:
            # silent for longer than a glance: from here on it has its connection to the engine
            box.run("head -c 2000000 /dev/zero; sleep 60", timeout_s=2.5)
            box.alive()
        before, wrong = descriptors(), []

        def work(box, seed):
            rng = random.Random(seed)
            for number in range(COMMANDS // 2):
                token = f"t{seed}n{number}"
                script, timeout_s, holds = (flood if rng.random() < 0.05 else shapes)(rng, token)
                result = box.run(script, timeout_s=timeout_s)
                if not holds(result):
                    wrong.append((script[:200], result.end, result.exit_code, result.head[:200], result.total_bytes))

        threads = [threading.Thread(target=work, args=(box, rng.randrange(10**6))) for box in boxes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert descriptors() <= before
        for box in boxes:
            box.alive()
            assert box.text("set -- /proc/[0-9]*; echo $#") == "2"  # process 1 and this bash
    finally:
        factory.close()
    assert left() == []


def test_sandboxes_lost_at_random_moments_leave_nothing(way):
    rng = random.Random(SEED)
    factory = Factory()
    factory(**way).sandbox.close()
    assert left() == []
    before = descriptors()
    try:
        with contextlib.closing(connect()) as client:
            remove = lambda name: client.api.remove_container(name, force=True)
            for number in range(SANDBOXES):
                box = factory(**way)
                name = box.sandbox.describe()["name"]
                close = lambda _, box=box: box.sandbox.close()
                end = [client.api.kill, remove, client.api.pause, close, close][number % 5]
                timer = threading.Timer(rng.uniform(0, 0.15), end, [name])
                timer.start()
                begun, lost = time.monotonic(), False
                while not lost and time.monotonic() - begun < 20:
                    try:
                        assert box.text(f"echo {number}; sleep 0.0{rng.randrange(6)}", timeout_s=20) == str(number)
                    except SandboxLost:
                        lost = True
                timer.join()
                assert lost, end
                box.sandbox.close()
                factory.boxes.clear()
        assert left() == []
        assert descriptors() <= before
    finally:
        factory.close()


@pytest.fixture
def private_engine(monkeypatch):
    """An engine of our own, with its own data and socket; gives a function that starts it."""
    if not FULL or os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("the whole of it only: AGENT_HARNESS_STRESS=1, root and dockerd")
    root = Path(tempfile.mkdtemp(prefix="sandbox-engine-"))
    socket = f"unix://{root}/s.sock"
    below = ["--root", root / "c", "--state", root / "state", "--address", root / "c.sock"]
    places = ["--data-root", root / "data", "--exec-root", root / "exec", "--pidfile", root / "pid", "-H", socket]
    running = []
    with open(root / "log", "ab") as out:
        containerd = subprocess.Popen(["containerd", *map(str, below)], stdout=out, stderr=out)

    def start():
        words = [
            "unshare",
            "--net",
            "dockerd",
            *map(str, places),
            "--bridge=none",
            "--iptables=false",
            "--ip-masq=false",
        ]
        words += ["--containerd", str(root / "c.sock")]
        with open(root / "log", "ab") as out:
            running.append(subprocess.Popen(words, stdout=out, stderr=out))
        until = time.monotonic() + 60
        while subprocess.run(["docker", "-H", socket, "version"], capture_output=True).returncode:
            assert running[-1].poll() is None, (root / "log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.2)
        return running[-1]

    try:
        start()
        save = subprocess.Popen(["docker", "save", OWN_IMAGE], stdout=subprocess.PIPE)
        subprocess.run(["docker", "-H", socket, "load"], stdin=save.stdout, check=True, capture_output=True)
        save.wait()
        monkeypatch.setenv("DOCKER_HOST", socket)
        yield start, running
    finally:
        running[-1].terminate()
        running[-1].wait(60)
        containerd.terminate()
        containerd.wait(60)
        for mount in reversed([line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]):
            if mount.startswith(str(root)):
                subprocess.run(["umount", "-l", mount], capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_restarted_in_mid_run_is_a_lost_sandbox_and_no_more(private_engine, how):
    start, running = private_engine
    factory = Factory()
    box = factory()
    box.alive()

    def restart():
        running[-1].send_signal(how)
        running[-1].wait(60)
        start()

    timer = threading.Timer(0.5, restart)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(SandboxLost):
        box.run("sleep 60", timeout_s=60)
    assert time.monotonic() - begun < 30
    timer.join()
    with contextlib.suppress(HarnessError):
        box.sandbox.close()
    assert left() == []
    after = factory()
    after.alive()
    factory.close()
    assert left() == []
