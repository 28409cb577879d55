"""What is Docker's own: lost containers, owners, images, mounts, and leaving nothing behind."""
# ruff: noqa: F811 - fixtures come from sandboxes

import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from docker.errors import NotFound

from agent_harness.errors import SandboxLost, SandboxUnavailable
from agent_harness.types import Command, Mode, Mount
from agent_harness_sandbox.docker_engine import DockerEngine
from agent_harness_sandbox.image import OWN_IMAGE, dockerfile, ensure, package_sources
from agent_harness_sandbox.owner import LABEL, Owner
from sandboxes import Factory, client, make, ours  # noqa: F401

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("how", ["kill", "pause", "remove"])
def test_a_container_that_goes_away_is_lost_in_seconds(make, client, how):
    box = make()
    name = box.sandbox.describe()["name"]
    ways = {
        "kill": client.api.kill,
        "pause": client.api.pause,
        "remove": lambda name: client.api.remove_container(name, force=True),
    }
    threading.Timer(0.5, ways[how], [name]).start()
    begun = time.monotonic()
    with pytest.raises(SandboxLost):
        box.run("sleep 100", timeout_s=100)
    assert time.monotonic() - begun < 5
    with pytest.raises(SandboxLost):
        box.run("true")
    box.sandbox.close()
    assert f"/{name}" not in ours(client)


def test_full_temporary_places_do_not_cost_the_server_its_life(make, client):
    box = make(memory=300 << 20, tmp_size=48 << 20)
    box.run("for d in /tmp /scratch /dev/shm; do head -c 1G /dev/zero >$d/fill; done", timeout_s=60)
    box.alive()
    assert client.api.inspect_container(box.sandbox.describe()["name"])["State"]["OOMKilled"] is False


def test_nothing_is_left_after_runs_and_after_failed_starts(make, client):
    for _ in range(3):
        make().sandbox.close()
    spec = make.spec()
    with pytest.raises(SandboxUnavailable, match="does not exist"):
        make.engine.start(replace(spec, mounts=(*spec.mounts, Mount("/no/such/folder", "/base", True))))
    with pytest.raises(SandboxUnavailable, match="runtime"):
        make.engine.start(replace(spec, runtime="no-such-runtime"))
    with pytest.raises(SandboxUnavailable, match="no image no-such"):
        make.engine.start(replace(spec, image="no-such-image:1"))
    assert ours(client) == []


@pytest.mark.parametrize("busy", [False, True])
def test_closing_waits_for_the_inside_alone(make, client, busy):
    box = make()
    box.text("setsid sleep 77 >/dev/null 2>&1 & true")
    name = box.sandbox.describe()["name"]
    outcome = []

    def use():
        with pytest.raises(SandboxLost):
            box.run("sleep 60", timeout_s=60)
        outcome.append("lost")

    if busy:
        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(0.3)
    begun = time.monotonic()
    box.sandbox.close()
    seconds = time.monotonic() - begun
    if busy:
        thread.join(5)
        assert outcome == ["lost"]
        with contextlib.suppress(NotFound):
            assert not client.api.inspect_container(name)["State"]["Running"]
    else:
        assert seconds < 0.1  # a few ms; a removal takes a hundred and more
    assert ours(client) == []


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1/0"])
def test_a_process_that_ends_takes_its_containers_away(make, client, end):
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from sandboxes import Factory\n"
        f"factory = Factory(); spec = factory.spec(); factory.folders.clear()\n"
        "sandbox = factory.engine.start(spec); print(sandbox.describe()['name'], spec.mounts[0].source, flush=True)\n"
        f"sandbox.close()\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    name, tree = done.stdout.split()
    with pytest.raises(NotFound):
        client.api.inspect_container(name)
    os.rmdir(tree)
    os.rmdir(os.path.dirname(tree))


@pytest.mark.parametrize("after", [0.02, 0.06, 0.1, 0.15, 0.25])
def test_an_interrupted_start_leaves_nothing(make, client, after):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(after, os.kill, [os.getpid(), signal.SIGUSR1])
    try:
        with contextlib.suppress(KeyboardInterrupt):
            timer.start()
            make()
            time.sleep(1)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    make.close()
    assert ours(client) == []


def test_a_workspace_of_somebody_else_is_told_before_the_run(make):
    if os.geteuid():
        pytest.skip("needs root to give a folder away")
    spec = make.spec()
    os.chown(spec.mounts[0].source, 4242, 4242)
    Path(spec.mounts[0].source).chmod(0o700)
    with pytest.raises(SandboxUnavailable, match="uid 1000"):
        make.engine.start(spec)


def test_the_owners_death_ends_the_container_and_reap_removes_only_that(make, client):
    script = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from sandboxes import Factory\n"
        "box = Factory()(); print(box.sandbox.describe()['name'], box.tree, flush=True)\n"
        "from agent_harness.types import Command\n"
        "box.sandbox.execute(Command('sleep 300', timeout_s=300))"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    name, tree = child.stdout.readline().split()
    living = make()
    assert name not in make.engine.reap()
    child.kill()
    child.wait()
    until = time.monotonic() + 10
    there = lambda: client.api.containers(filters={"name": name})
    while there() and time.monotonic() < until:
        time.sleep(0.05)
    assert not there()
    assert name in make.engine.reap() or f"/{name}" not in ours(client, LABEL), "or a test beside this one reaped it"
    living.alive()
    os.rmdir(tree)
    os.rmdir(os.path.dirname(tree))


def in_spite_of_reapers(start):
    """The name of a sandbox that any reaper may take: tests beside this one start reapers too."""
    for _ in range(10):
        with contextlib.suppress(SandboxLost, SandboxUnavailable):
            return start().sandbox.describe()["name"]
    raise AssertionError("it was reaped ten times before it had started")


def test_containers_of_an_earlier_boot_go_and_those_of_another_host_stay(make, client):
    here = Owner.current()
    left = Factory(DockerEngine(replace(here, boot="an-earlier-boot")))
    other = Factory(DockerEngine(replace(here, machine="another-host", pid=1)))
    try:
        gone, kept = in_spite_of_reapers(left), other().sandbox.describe()["name"]
        reaped = make.engine.reap()
        assert gone in reaped or f"/{gone}" not in ours(client, LABEL), "or a test beside this one reaped it"
        assert kept not in reaped
        assert f"/{kept}" in ours(client, LABEL)
    finally:
        left.close()
        other.close()


def test_starts_at_once(make):
    boxes, faults = [], []

    def start():
        try:
            boxes.append(make())
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (faults, len(boxes)) == ([], 8)
    for box in boxes:
        box.alive()


@pytest.mark.parametrize("folder", ["with space", "with:colon:ro", "ünïcödé"])
def test_folders_of_any_name(make, folder):
    spec = make.spec(files={"f": b"1"}, folder=folder)
    with contextlib.closing(make.engine.start(spec)) as sandbox:
        assert sandbox.read_file("f", 10) == b"1"


def test_a_repository_of_another_user_is_no_obstacle(make):
    box = make()
    box.text("git init -q . && echo 1 >f && git add f && git commit -qm one")
    if os.geteuid() == 0:
        os.chown(box.tree / ".git", 4242, 4242)
    assert box.text("git log --format=%s") == "one"


def test_a_mount_inside_a_read_only_source_is_not_writable(make, tmp_path):
    spec = make.spec(mode=Mode.RO, files={"sub/.keep": b""})
    sub = f"{spec.mounts[0].source}/sub"
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "none", sub], capture_output=True).returncode:
        pytest.skip("needs to mount")
    try:
        with contextlib.closing(make.engine.start(spec)) as sandbox:
            assert not sandbox.execute(Command("echo x >sub/x", timeout_s=10)).ok
    finally:
        subprocess.run(["umount", sub], check=True)


def test_the_hosts_paths_do_not_show(make):
    box = make()
    mounts = box.text("cat /proc/self/mountinfo")
    here = str(Path(__file__).parents[2])
    assert here not in mounts
    assert str(Path.home()) + "/" not in mounts


def test_the_images_path_and_variables_are_kept(make, client):
    tag = f"sandbox-test-path:{os.getpid()}"
    text = f'FROM {OWN_IMAGE}\nENV PATH=/opt/x/bin:$PATH GOPATH=/go\nENTRYPOINT ["false"]\nHEALTHCHECK CMD false\n'
    client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True)
    try:
        box = make(image=tag)
        assert box.text("echo $PATH $GOPATH").startswith("/opt/x/bin:/usr/local/sbin:")
        assert box.text("echo $GOPATH") == "/go"
        box.sandbox.close()
    finally:
        client.images.remove(tag, force=True)


def test_an_image_without_python_or_with_a_volume_is_told_in_one_line(make, client):
    def import_image(name, changes):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("empty"))
        client.api.import_image_from_data(data.getvalue(), repository=f"{name}:1", changes=changes)

    bare, volume = f"sandbox-test-bare-{os.getpid()}", f"sandbox-test-volume-{os.getpid()}"
    import_image(bare, ["ENV PATH=/bin"])
    text = f"FROM {OWN_IMAGE}\nVOLUME /data\n"
    client.images.build(fileobj=io.BytesIO(text.encode()), tag=f"{volume}:1", rm=True)
    try:
        with pytest.raises(SandboxUnavailable) as caught:
            make(image=f"{bare}:1")
        assert "the image has no bash; it needs bash and git" in caught.value.line
        assert "image that has bash and git, and python3 (3.9 or later) or none" in caught.value.next
        with pytest.raises(SandboxUnavailable, match="/data that was not asked for"):
            make(image=f"{volume}:1")
        assert ours(client) == []
    finally:
        client.images.remove(f"{bare}:1", force=True)
        client.images.remove(f"{volume}:1", force=True)


def test_an_image_without_python_is_lent_one(make, client):
    tag = f"sandbox-test-lent:{os.getpid()}"
    text = f"FROM {OWN_IMAGE}\nUSER 0\nRUN rm /usr/bin/python3*\n"
    client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True, network_mode="none")
    try:
        box = make(image=tag, allow=("listed.example:443",))
        beside = [path.name.partition("-")[0] for path in box.tree.parent.iterdir()]
        assert (sorted(beside), box.sandbox.describe()["exec"]) == (["python", "tree", "way"], "lent python3")
        assert box.run("exit 150").end == "exited"
        assert "is not in sandbox.allow" in box.text(
            "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT x:1 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
        )
        assert [finding for finding in make.engine.doctor(tag) if not finding.ok] == []
        box.sandbox.close()
        assert ours(client) == []
        assert [path.name for path in box.tree.parent.iterdir()] == ["tree"]
    finally:
        client.images.remove(tag, force=True)


def test_no_engine_is_one_clear_line(make, monkeypatch):
    spec = make.spec()
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    for call in (
        lambda: make.engine.start(spec),
        make.engine.reap,
        lambda: make.engine.image_id("x"),
        lambda: ensure(print),
    ):
        with pytest.raises(SandboxUnavailable, match=r"no Docker engine answers at unix:///no/such\.sock"):
            call()
    [only] = make.engine.doctor("x")
    assert (only.name, only.ok) == ("engine", False)
    assert "apt-get install docker.io" in only.fix


def test_doctor_finds_all_well_and_a_missing_image(make, client):
    findings = make.engine.doctor(OWN_IMAGE)
    assert [finding for finding in findings if not finding.ok] == []
    assert len(findings) > 12
    assert make.engine.doctor("no-such:1")[-1].ok is False
    assert ours(client) == []


def test_the_image_is_there_at_once_the_second_time():
    said = []
    assert (ensure(said.append), said) == (OWN_IMAGE, [])


def test_the_recipe_reads_this_machines_own_sources():
    suite, sources = package_sources()
    assert suite
    assert all(line.startswith("deb ") for line in sources)
    assert dockerfile().startswith("FROM ")
