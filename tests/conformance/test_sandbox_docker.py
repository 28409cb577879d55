"""The Docker sandbox against the suite that every sandbox must pass."""

import pytest

from agent_harness_sandbox.conformance import *  # noqa: F403
from sandboxes import Factory

pytestmark = pytest.mark.docker


@pytest.fixture
def make_sandbox():
    factory = Factory()
    yield factory
    factory.close()
