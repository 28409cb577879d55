"""The text protocol: what the prompt teaches is what the parser reads."""

import json
import re
import time

import pytest

from agent_harness_roles import protocol
from agent_harness_roles.replies import MAX_CALLS, ReplyReader
from agent_harness_roles.runner import Runner
from agent_harness_roles.tools import Toolbox
from fakes.model import says
from fakes.roles import DONE, PlainLoop, RoleKit

TOOLS = Toolbox(Runner(PlainLoop()).role("implementer")).specs


def test_every_example_of_the_prompt_is_read_back_and_fits_its_tool():
    toolbox = Toolbox(Runner(PlainLoop()).role("implementer"))
    taught = protocol.prompt(TOOLS)
    blocks = protocol.parse(taught, TOOLS)
    assert [block.name for block in blocks] == ["bash", "edit", "submit"]
    for block in blocks[:2]:
        value, problem = toolbox.parse(block.name, block.arguments)
        assert value and not problem
    assert blocks[2].arguments == '{"outcome":"done or impossible","summary":"..."}'
    for role in ("implementer", "reviewer"):  # a model that sends the shape back has submitted nothing
        box = Toolbox(Runner(PlainLoop()).role(role))
        (shape,) = [block for block in protocol.parse(protocol.prompt(box.specs), box.specs) if block.name == "submit"]
        assert box.parse("submit", shape.arguments)[0] is None
    for tool in TOOLS:
        assert f"Tool {tool.name}: {tool.description}" in taught
    assert '"outcome"' in taught


def test_a_reader_only_learns_its_own_tools():
    reviewer = Toolbox(Runner(PlainLoop()).role("reviewer")).specs
    assert "edit" not in re.findall(r"^```(\w+)", protocol.prompt(reviewer), re.M)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("I look.\n```bash\nls -l\n```\n", [("bash", {"command": "ls -l"})]),
        ("```bash\na\n```\ntext\n```bash\nb\n\nc\n```", [("bash", {"command": "a"}), ("bash", {"command": "b\n\nc"})]),
        (
            "````bash\ncat > x.md <<'E'\n```python\n1\n```\nE\n````",
            [("bash", {"command": "cat > x.md <<'E'\n```python\n1\n```\nE"})],
        ),
        ("```python\nprint(1)\n```", []),
        ("````markdown\n```bash\nrm -rf /\n```\n````", []),
        ("use ```bash``` for that", []),
        ('```submit\n{"outcome": "done"}\n```', [("submit", {"outcome": "done"})]),
    ],
)
def test_blocks(text, calls):
    assert [(b.name, json.loads(b.arguments)) for b in protocol.parse(text, TOOLS)] == calls


def test_an_open_block_is_a_problem():
    (block,) = protocol.parse("```bash\nrm -rf build", TOOLS)
    assert "not closed" in block.problem


def test_a_run_over_text_reaches_its_end(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    kit = RoleKit(tmp_path, protocol="text")
    edit = json.dumps({"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 2"}]})
    ended = kit.run(
        says(text="Look.\n```bash\ncat a.py\n```\n```bash\nfalse\n```"),
        says(text="```edit\n{broken\n```"),
        says(text=f"```edit\n{edit}\n```"),
        says(text=f"Done.\n```submit\n{json.dumps(DONE)}\n```"),
    )
    assert ended.ended == "submitted" and ended.submission == DONE
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
    told = kit.told()
    assert [m.role for m in told] == ["system", "user"] + ["assistant", "user"] * 3
    assert "Result of bash (1 of 2):\n[exit code 0]\nx = 1" in told[3].content
    assert "Result of bash (2 of 2):\n[exit code 1, no output]" in told[3].content
    assert "not valid JSON" in told[5].content
    assert not any(m.tool_calls or m.tool_call_id for m in told)
    assert all(request.tools == () for request in kit.model.requests)
    assert "protocol" in kit.recorder.of("role.started")[0]["prompts"]


@pytest.mark.parametrize("line", ["```" + "a" * 300_000 + "`", "```" + " " * 300_000 + "`", "`" * 300_000 + "x`"])
def test_a_line_of_any_length_is_read_at_once(line):
    began = time.monotonic()
    assert protocol.parse(f"{line}\n```bash\nls\n```", TOOLS)[-1].name == "bash"
    assert time.monotonic() - began < 2


def test_a_reply_of_very_many_blocks_is_refused_at_once():
    reader = ReplyReader(Toolbox(Runner(PlainLoop()).role("implementer")), str, text_protocol=True)
    began = time.monotonic()
    turn = reader.read(says(text="```bash\nls\n```\n" * 20_000))
    assert not turn.calls and f"more than {MAX_CALLS} calls" in turn.problems[0].content
    assert len(turn.problems[0].content) < 20_000
    for _ in range(20):
        assert len(reader.read(says(text="```bash\nls\n```\n" * MAX_CALLS)).calls) == MAX_CALLS
    assert time.monotonic() - began < 5
