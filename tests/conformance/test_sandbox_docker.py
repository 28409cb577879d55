"""The Docker sandbox against the suite that every sandbox must pass, by each way of executing.

The engine is the one that `docker` would use; AGENT_HARNESS_TEST_ENGINE names another socket, such as podman's
(`unix:///run/podman/podman.sock`), and the suite then skips, with what that engine said, where it takes no profile."""

import contextlib
import io
import os

import pytest

from agent_harness.errors import SandboxUnavailable
from agent_harness_sandbox.attacks import *  # noqa: F403
from agent_harness_sandbox.client import connect
from agent_harness_sandbox.conformance import *  # noqa: F403
from agent_harness_sandbox.image import OWN_IMAGE
from sandboxes import Factory

pytestmark = pytest.mark.docker
HIDDEN = "/opt/hidden"


@pytest.fixture(scope="module", autouse=True)
def engine():
    """Where the tests run. A named engine that does not take the profile is told, and never tested in part."""
    with pytest.MonkeyPatch.context() as patch:
        if named := os.environ.get("AGENT_HARNESS_TEST_ENGINE"):
            patch.setenv("DOCKER_HOST", named)
            factory = Factory()
            try:
                factory()
            except SandboxUnavailable as fault:
                pytest.skip(f"{named}: {fault.line[:300]}")
            finally:
                factory.close()
        yield


@pytest.fixture(scope="module")
def without_python():
    """The own image with its Python where no exec server looks, so that every probe of the suite still runs."""
    tag = f"sandbox-test-without-python:{os.getpid()}"
    text = f"FROM {OWN_IMAGE}\nUSER 0\nRUN mkdir {HIDDEN} && mv /usr/bin/python3* {HIDDEN}\n"
    with contextlib.closing(connect()) as client:
        client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True, network_mode="none")
        yield tag
        client.images.remove(tag, force=True)


@pytest.fixture(params=["python3", "lent python3"])
def make_sandbox(request):
    factory = Factory()

    def make(*args, **changes):
        if request.param == "lent python3":
            changes["image"] = request.getfixturevalue("without_python")
            changes["env"] = {"PYTHON": f"{HIDDEN}/python3", **changes.get("env", {})}
        box = factory(*args, **changes)
        assert box.sandbox.describe()["exec"] == request.param
        return box

    yield make
    factory.close()
