"""Images made from the base: built, set up once, found again, and run under the same profile as any other."""
# ruff: noqa: F811 - fixtures come from sandboxes

import http.server
import io
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_harness.errors import Cancelled, ConfigError, SandboxUnavailable
from agent_harness.types import ImagePlan, Mount
from agent_harness_sandbox import build, image
from agent_harness_sandbox.conformance import Box
from agent_harness_sandbox.docker_engine import DockerEngine
from agent_harness_sandbox.image import OWN_IMAGE
from sandboxes import client, made, make, ours  # noqa: F401

pytestmark = pytest.mark.docker


class Maker:
    """Prepares plans on a tree, remembers what was said, and removes the images it made."""

    def __init__(self, tree: Path, client) -> None:
        self.tree, self.client, self.said, self.projects = tree, client, [], {str(tree)}

    def tags(self):
        return made(self.client, *self.projects)

    def __call__(self, stopped=lambda: False, **fields):
        plan = ImagePlan(str(self.tree), **({"project": str(self.tree)} | fields))
        self.projects.add(plan.project)
        return DockerEngine().prepare(plan, self.said.append, stopped)

    def write(self, **files):
        for name, text in files.items():
            (self.tree / name.replace("__", "/")).parent.mkdir(exist_ok=True)
            (self.tree / name.replace("__", "/")).write_text(text)

    def close(self):
        for tag in sorted(self.tags(), reverse=True):
            self.client.api.remove_image(tag, force=True)


@pytest.fixture
def maker(tmp_path, client):
    tree = tmp_path / "base"
    tree.mkdir()
    one = Maker(tree, client)
    yield one
    one.close()


def left(client):
    return [name for name in ours(client) if "setup" in name]


def test_a_set_up_is_run_once_and_again_when_what_it_depends_on_changes(maker, make, client, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_HARNESS_TEST_KEY", "sk-controller-canary-75")
    maker.write(**{"requirements.txt": "one", "other": "x"})
    cache = tmp_path / "cache"
    cache.mkdir()
    plan = {
        "reference": OWN_IMAGE,
        "setup": ("mkdir -p /opt/deps && cp requirements.txt /opt/deps/ && env >/opt/deps/env", "id -u >/opt/deps/uid; cd /; touch $PIP_CACHE_DIR/got", "ls -A >/opt/deps/ls"),
        "setup_files": ("requirements*.txt",),
        "caches": (Mount(str(cache), "/cache/pip", read_only=False),),
        "env": {"PIP_CACHE_DIR": "/cache/pip"},
        "user": (1000, 1000),
    }  # fmt: skip
    first = maker(**plan)
    assert len(maker.said) == 1
    assert (cache / "got").exists() and (os.geteuid() or cache.joinpath("got").stat().st_uid == 1000)
    maker.write(other="changed")
    assert maker(**plan) == first and len(maker.said) == 1
    spec = make.spec(image=first)
    spec = replace(spec, mounts=(*spec.mounts, Mount(str(cache), "/cache/pip", read_only=True)))
    box = Box(make.engine.start(spec), Path(spec.mounts[0].source), spec.uid)
    make.boxes.append(box)
    shown = box.run(
        "cat /opt/deps/requirements.txt /opt/deps/uid; ls -A /workspace; cat /opt/deps/ls; touch /opt/x /cache/pip/x; id -u"
    ).head.decode()
    assert shown.splitlines()[0] == "one0" and "other\nrequirements.txt" in shown
    assert shown.count("Read-only file system") == 2 and not shown.rstrip().endswith("\n0")
    env = box.run("cat /opt/deps/env; env").head.decode()
    assert "sk-controller" not in env and env.count("PIP_CACHE_DIR") == 1  # a variable of the set-up alone
    maker.write(**{"requirements.txt": "two"})
    assert maker(**plan) != first and len(maker.said) == 2
    assert left(client) == []


def test_a_set_up_that_fails_takes_too_long_or_is_stopped_leaves_nothing(maker, client):
    before = maker.tags()
    with pytest.raises(SandboxUnavailable, match=r"exit code 7.*no such wheel"):
        maker(reference=OWN_IMAGE, setup=("echo no such wheel; exit 7", "echo not reached"))
    with pytest.raises(SandboxUnavailable, match="took too long"):
        maker(reference=OWN_IMAGE, setup=("sleep 60",), timeout_s=1)
    with pytest.raises(Cancelled):
        maker(lambda: True, reference=OWN_IMAGE, setup=("sleep 61",))
    with pytest.raises(SandboxUnavailable, match=r"no image no/such:1.*doctor --fix"):
        maker(reference="no/such:1", setup=("true",))
    assert maker.tags() == before and left(client) == []


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a wheel")

    def log_message(self, *words):
        pass


def test_a_set_up_has_no_network_or_an_allow_list(maker, make):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        get = "python3 -c \"import urllib.request as u; open('/opt/got','wb').write(u.urlopen('http://127.0.0.1:%d/', timeout=9).read())\""
        with pytest.raises(SandboxUnavailable, match="set-up ended"):
            maker(reference=OWN_IMAGE, setup=(get % port,))
        refused = "python3 -c \"import urllib.request as u; u.urlopen('http://example.org:81/')\" || true"
        made = maker(reference=OWN_IMAGE, setup=(get % port, refused), allow=(f"127.0.0.1:{port}",))
        server.shutdown()
    assert any("was refused example.org:81" in line for line in maker.said)
    box = make(image=made)
    assert box.run("cat /opt/got").head == b"a wheel"
    assert b"PROXY" not in box.run("env").head


def test_a_dockerfile_is_built_from_the_base_and_found_again(maker, make):
    maker.write(
        **{
            "env__Dockerfile": f"ARG V=0\nFROM {OWN_IMAGE}\nCOPY kept /opt/kept\nCOPY . /opt/all\n",
            "kept": "k",
            "secret": "s",
            ".dockerignore": "# no\nsecret\n",
        }
    )
    first = maker(dockerfile="env/Dockerfile")
    assert maker.said and maker(dockerfile="env/Dockerfile") == first and len(maker.said) == 1
    os.utime(maker.tree / "kept", (1, 1))
    assert maker(dockerfile="env/Dockerfile") == first  # times do not count
    shown = make(image=first).run("cat /opt/kept; ls -A /opt/all").head.decode()
    assert shown.startswith("k") and "secret" not in shown
    maker.write(kept="changed")
    assert maker(dockerfile="env/Dockerfile") != first
    with pytest.raises(SandboxUnavailable, match=r"building bad failed.*exit|non-zero"):
        maker.write(bad=f"FROM {OWN_IMAGE}\nRUN exit 9\n")
        maker(dockerfile="bad")


@pytest.mark.parametrize("path", ["../outside", "link", "/etc/hostname", "none", "."])
def test_a_dockerfile_outside_the_base_is_refused(maker, path):
    (maker.tree.parent / "outside").write_text("FROM x")
    (maker.tree / "link").symlink_to("../outside")
    with pytest.raises(ConfigError, match="no file"):
        maker(dockerfile=path)


def test_a_devcontainer_is_built_and_set_up_with_the_variables_that_are_listed(maker, make):
    about = {
        "build": {"dockerfile": "Dockerfile", "args": {"V": "7"}},
        "containerEnv": {"MODE": "test", "OTHER": "x"},
        "postCreateCommand": "cp /opt/v /opt/created; echo $MODE >>/opt/created",
    }
    maker.write(
        **{
            ".dev__devcontainer.json": json.dumps(about),
            ".dev__Dockerfile": f"FROM {OWN_IMAGE}\nARG V\nRUN echo $V >/opt/v\n",
        }
    )
    made = maker(devcontainer=".dev/devcontainer.json", devcontainer_env=("MODE",))
    assert any("left out OTHER" in line for line in maker.said)
    box = make(image=made)
    assert box.run("cat /opt/created; echo $MODE.$OTHER").head.decode().split() == ["7", "test", "test."]


def test_a_pull_that_cannot_be_says_so(maker):
    with pytest.raises(SandboxUnavailable):
        maker(reference="127.0.0.1:9/no/such:1", fetch=True)
    assert maker(reference=OWN_IMAGE, fetch=True) == maker(reference=OWN_IMAGE)
    assert len(maker.said) == 1


def test_superseded_images_go_and_one_that_is_used_stays(maker, make, client):
    plan = {"reference": OWN_IMAGE, "project": str(maker.tree)}
    images = [maker(setup=(f"echo {number} >/opt/number",), **plan) for number in range(6)]
    other = maker(setup=("echo other >/opt/number",), reference=OWN_IMAGE, project=f"{maker.tree} another")
    box = make(image=images[0])
    maker(setup=("echo 1 >/opt/number",), **plan)  # asked for again: the newest now
    said, soon = [], time.time()
    bench = build.Bench(client, lambda name: (name, {}), "", said.append, lambda: False)
    there = lambda: [one for one in images if any(found.id == one for found in client.images.list())]
    build.tidy(bench, ImagePlan("", **plan), soon)
    assert there() == images and said == []  # all of today
    build.tidy(bench, ImagePlan("", **plan), soon + 2 * image.UNUSED_S)
    assert there() == [images[0], images[1], images[4], images[5]]
    assert len(said) == 2 and "superseded image agent-harness-setup:" in said[0]
    assert client.images.get(other).id == other
    box.alive()


def test_an_own_image_of_an_older_recipe_goes_once_it_is_unused(make, client):
    older, in_use = (f"{image.REPOSITORY}:test-{os.getpid()}-{name}" for name in ("unused", "in-use"))
    for tag in (older, in_use):
        text = f"FROM {OWN_IMAGE}\nLABEL test={tag}\n"
        client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True)
    box, said = make(image=in_use), []
    ensure = lambda now: image.clear(client, [client.images.get(tag) for tag in (older, in_use)], said.append, now)
    try:
        ensure(time.time() + image.UNUSED_S - 60)
        assert said == []
        ensure(time.time() + image.UNUSED_S + 60)
        assert said == [f"removed the superseded image {older}"]
        assert client.images.list(older) == [] and client.images.list(in_use)
        box.alive()
    finally:
        box.sandbox.close()
        make.close()
        client.images.remove(in_use, force=True)


def test_a_start_counts_as_a_use_of_the_own_image(make, client):
    before = image.used(client.images.get(OWN_IMAGE))
    make()
    assert image.used(client.images.get(OWN_IMAGE)) > before
