"""What the line for an old output promises: in a real sandbox, the file it names holds all of it."""

import re

import pytest

from agent_harness.types import Ended, Limits
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from fakes.model import bash, call, says
from fakes.roles import DONE, RoleKit
from sandboxes import Factory

pytestmark = pytest.mark.docker
LINE = re.compile(r"\[exit code (\d+); (\d+) bytes elided: the output of `(.+)` is in (\S+)\]")


@pytest.fixture
def factory():
    made = Factory()
    yield made
    made.close()


def test_each_elided_output_can_be_read_again_whole(factory, tmp_path):
    kit = RoleKit(tmp_path, loop=MiniSweLoop(), history_chars=30_000, limits=Limits(90, 10**8, 10**14, 3600.0))
    kit.sandbox = factory().sandbox
    sizes = [300, 5000, 1001, 9000, 4000, 999, 20_000, 3000, 6144, 5000, 6145, 4000, 5000]
    looks = [says(bash(f"head -c {size} /dev/zero | tr '\\0' '{n % 10}'; exit {n}")) for n, size in enumerate(sizes)]
    read_back = []

    def again(request):
        found = [LINE.search(message.content) for message in request.messages if message.role == "tool"]
        read_back.extend(line.groups() for line in found if line)
        checks = [f"test $(tr -d {n % 10} < {path} | wc -c) = 0 && stat -c %s {path}" for n, _, _, path in numbered()]
        return says(bash("; ".join(checks)))

    def numbered():
        return [(int(code), int(size), command, path) for code, size, command, path in read_back]

    def stop(request):
        read_back.append(request.messages[-1].content)
        return says(call("submit", **DONE), text="done")

    outcome = kit.run(*looks, again, stop)
    *lines, told = read_back
    assert outcome.ended is Ended.SUBMITTED, outcome.detail
    assert len(lines) >= 5
    for code, size, command, _ in lines:
        assert int(size) == sizes[int(code)] > 1000
        assert f"head -c {size} " in command
    assert told.split("\n")[1:] == [size for _, size, _, _ in lines] + [""]
