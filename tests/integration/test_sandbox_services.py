"""Servers beside a sandbox: reached on its loopback, by nobody else, reaching nothing, and gone with it."""
# ruff: noqa: F811 - fixtures come from sandboxes

import io
import subprocess
import sys
import time

import pytest

from agent_harness.errors import SandboxUnavailable, UsageError
from agent_harness.types import Service
from agent_harness_sandbox.docker_engine import DockerEngine
from agent_harness_sandbox.image import OWN_IMAGE
from agent_harness_sandbox.owner import LABEL
from sandboxes import client, make, ours  # noqa: F401

pytestmark = pytest.mark.docker

SERVER = "import http.server,os; os.chdir('/tmp'); open('ready','w').write(os.environ['GREETING']); http.server.test(http.server.SimpleHTTPRequestHandler, port=8099, bind='127.0.0.1')"
WEB = Service(
    "web",
    OWN_IMAGE,
    env={"GREETING": "hello"},
    command=("python3", "-c", SERVER),
    health="test -s /tmp/ready",
    ports=(8099,),
)
GET = "python3 -c \"import urllib.request as u; print(u.urlopen('http://{}:8099/ready', timeout=5).read().decode())\""


def test_a_service_is_there_for_its_sandbox_alone_and_has_no_network(make, client, monkeypatch):
    monkeypatch.setenv("AGENT_HARNESS_TEST_KEY", "sk-controller-canary-74")
    box, other = make(services=(WEB,)), make(services=(WEB,))
    for host in ("127.0.0.1", "localhost", "web"):
        assert box.run(GET.format(host)).head.decode().strip() == "hello"
    assert box.run("cat /proc/net/dev | grep -c :").head.strip() == b"1"  # lo
    # each sandbox has its own: what one writes, no other sees
    name = box.sandbox.describe()["name"] + "-web"
    seen = lambda script, where: client.containers.get(where).exec_run(["sh", "-c", script]).output.decode()
    seen("echo spoilt >/tmp/ready", name)
    assert box.run(GET.format("web")).head.decode().strip() == "spoilt"
    assert other.run(GET.format("web")).head.decode().strip() == "hello"
    shown = seen(
        "env; cat /proc/1/environ; cat /proc/net/dev; grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/1/status", name
    )
    assert "sk-controller" not in shown and "eth" not in shown
    assert "NoNewPrivs:\t1" in shown and "Seccomp:\t2" in shown and "CapBnd:\t00000000000000cb" in shown
    about = client.api.inspect_container(name)["HostConfig"]
    assert about["Memory"] and about["PidsLimit"] and not about["Binds"]
    assert box.sandbox.describe()["services"] == ["web"]
    # the sweep after a command is of the sandbox's own processes, not the service's
    box.run("kill -9 -1", timeout_s=10)
    assert box.run(GET.format("web")).head.decode().strip() == "spoilt"
    box.sandbox.close()
    other.sandbox.close()
    assert ours(client) == []


@pytest.mark.parametrize(
    ("service", "why"),
    [
        (
            Service("gone", OWN_IMAGE, command=("sh", "-c", "echo no such data >&2; exit 3")),
            "exit code 3.*no such data",
        ),
        (Service("none", "no/such-image:1"), "no image no/such-image:1"),
    ],
)
def test_a_service_that_cannot_be_leaves_nothing(make, client, service, why):
    with pytest.raises(SandboxUnavailable, match=why):
        make(
            services=(service, WEB)
            if service.name == "none"
            else (WEB, Service(service.name, service.image, {}, service.command, "sleep 1; false"))
        )
    assert ours(client) == []


def test_two_services_on_one_port_are_refused(make):
    with pytest.raises(UsageError, match="same port"):
        make(services=(WEB, Service("two", OWN_IMAGE, ports=(8099,))))


def test_an_image_that_gives_its_volume_to_its_own_user_works_in_memory(make, client):
    text = f"FROM {OWN_IMAGE}\nVOLUME /data\n"
    image, _ = client.images.build(fileobj=io.BytesIO(text.encode()), rm=True, forcerm=True)
    become = "import os,time; os.chown('/data', 999, 999); os.setgroups([]); os.setgid(999); os.setuid(999); open('/data/x', 'w'); time.sleep(99)"
    volumes = len(client.volumes.list())
    try:
        box = make(services=(Service("db", image.id, command=("python3", "-c", become), health="test -e /data/x"),))
        served = client.containers.get(box.sandbox.describe()["name"] + "-db")
        shown = served.exec_run(["sh", "-c", "stat -c %u /data/x; grep ' /data ' /proc/mounts"]).output.decode()
        assert shown.startswith("999\ntmpfs /data tmpfs") and len(client.volumes.list()) == volumes
        box.sandbox.close()
        assert ours(client) == []
    finally:
        client.api.remove_image(image.id, force=True)


def test_after_a_kill_the_next_one_reaps_services_too(client):
    script = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from sandboxes import Factory\nfrom test_sandbox_services import WEB\n"
        "from agent_harness_sandbox.owner import Owner\n"
        "Factory()(services=(WEB,)); print(Owner.current(), flush=True); import time; time.sleep(60)"
    )
    path = "import sys; sys.path.insert(0, 'tests/integration')\n"
    with subprocess.Popen([sys.executable, "-c", path + script], stdout=subprocess.PIPE, text=True) as process:
        owner = process.stdout.readline().strip()
        assert len(ours(client, f"{LABEL}={owner}")) == 2
        process.kill()
    until = time.monotonic() + 20
    while ours(client, f"{LABEL}={owner}") and time.monotonic() < until:
        DockerEngine().reap()
    assert ours(client, f"{LABEL}={owner}") == []
