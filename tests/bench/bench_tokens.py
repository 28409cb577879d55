"""What conversations of 30 to 80 turns cost under each provider's prices and cache rules. `python tests/bench/bench_tokens.py`

Each transcript is played twice; the demonstration of 7 turns is shown beside them, without a target. Ours: the real runner, loop, tools, client, prices and the transport's own arguments,
down to the wire. mini-swe-agent's: its agent, its model class and its default configuration, down to its call of
litellm. A provider is stood in for by its cache's rules, which count what was sent. The commands, their whole outputs
and the model's words are the same on both sides. A token is four bytes here, everywhere.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1"}

from agent_harness import demo
from agent_harness.models.client import ModelClient, Route
from agent_harness.models.pricing import PriceTable, cost
from agent_harness.models.recording import ReplayTransport
from agent_harness.models.routes import history_chars
from agent_harness.ports import Environment, Task, Termination
from agent_harness.types import Command, CommandEnd, CommandResult, Finish, Limits, Message, Reply, ToolCall, Usage
from agent_harness_adapters.litellm_transport import LitellmTransport, _litellm
from agent_harness_adapters.miniswe_loop import MiniSweLoop
from agent_harness_roles.runner import Runner
from agent_harness_sandbox.execd import Folder, Output
from fakes.model import FakeBudget
from fakes.model_parts import FakeClock, ListRecorder
from fakes.roles import DONE, IMPLEMENTER
from fakes.sandbox import FakeSandbox

BYTES, LEAST_RATIO, LARGE_RATIO, LARGE = 4, 3.0, 1.5, ("logs", "reads", "mixed")
TABLE = PriceTable.load()
THINKS_S = 8.0


# --- transcripts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """One turn: what the model says, what it does (one call), what a command prints, how long it runs."""

    text: str
    name: str
    arguments: dict[str, Any]
    output: str = ""
    code: int = 0
    seconds: float = 1.0

    @property
    def shell(self) -> str:
        """The same as a command, for an agent that has no other tool."""
        if self.name == "bash":
            return str(self.arguments["command"])
        if self.name == "submit":
            return "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        lines = [f"s = s.replace({e['old']!r}, {e['new']!r}, 1)" for e in self.arguments["edits"]]
        path = self.arguments["path"]
        body = "\n".join(
            ["from pathlib import Path", f"p = Path({path!r})", "s = p.read_text()", *lines, "p.write_text(s)"]
        )
        return f"python3 - <<'EOF'\n{body}\nEOF"


WORDS = (
    "request response parse buffer index cursor token stream header value record field table row column retry limit "
    "budget clock event queue worker claim lease commit branch tree path folder reader writer encode decode total"
)
"""What names and prose are made of."""


class Writer:
    """Texts like those that tools print, the same ones each time."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)

    def name(self, parts: int = 2) -> str:
        return "_".join(self.dice.choice(WORDS.split()) for _ in range(parts))

    def code(self, size: int) -> str:
        """Python of about a size, as `sed -n` shows it."""
        out: list[str] = []
        while sum(map(len, out)) < size:
            one, two = self.name(), self.name(1)
            out.append(
                f"    def {one}(self, {two}: int, *, {self.name()}: str = '{self.name(1)}') -> bool:\n"
                f'        """{self.name(1).capitalize()} the {self.name(1)} of a {self.name(1)}; raises {self.name(1).capitalize()}Error."""\n'
                f"        if {two} < self._{self.name()}:\n            return self.{self.name()}({two} + {self.dice.randrange(99)})\n"
                f"        return {two} not in self.{self.name(1)}s\n\n"
            )
        return "".join(out)

    def log(self, tests: int, failures: int) -> str:
        """A verbose test run."""
        dots = "".join(
            f"tests/test_{self.name(1)}.py::test_{self.name(4)} PASSED{' ' * 20}[{n * 100 // tests:3}%]\n"
            for n in range(tests)
        )
        traces = "".join(
            f"______ test_{self.name(3)} ______\n\n{self.code(700)}\n>       assert {self.name()} == {self.dice.randrange(99)}\n"
            f"E       AssertionError: assert {self.dice.randrange(99)} == {self.dice.randrange(99)}\n\n"
            for _ in range(failures)
        )
        return f"{dots}=== FAILURES ===\n{traces}=== {failures} failed, {tests - failures} passed in {self.dice.random() * 90:.2f}s ===\n"

    def listing(self, lines: int) -> str:
        """What `rg -n` finds."""
        return "".join(
            f"src/{self.name(1)}/{self.name()}.py:{self.dice.randrange(900)}:    {self.name()} = {self.name()}({self.name(1)})\n"
            for _ in range(lines)
        )

    def said(self) -> str:
        """A sentence or two of the model."""
        return " ".join(self.name(1) for _ in range(self.dice.randrange(12, 40))).capitalize() + "."


def transcript(shape: str, turns: int) -> list[Turn]:
    """One of the shapes: short outputs, long test logs, big file reads, or all of them."""
    w = Writer(f"{shape} {turns}")
    kinds = {"short": "lse", "logs": "teltse", "reads": "rrler", "mixed": "lrterslse"}[shape]
    out: list[Turn] = []
    for number in range(turns - 1):
        path, kind = f"src/{w.name()}.py", kinds[number % len(kinds)]
        if kind == "e":
            line = f"value_{number} = 0\n"
            new = f"value_{number} = {number}\n{w.code(300)}"
            out.append(Turn(w.said(), "edit", {"path": "src/app.py", "edits": [{"old": line, "new": new}]}))
            continue
        command, output, code, seconds = {
            "l": (f"rg -n '{w.name()}' src | head -40", w.listing(w.dice.randrange(2, 9)), 0, 0.1),
            "s": (f"python3 -c 'import {w.name(1)}; print({w.name(1)})'", f"{w.name(3)}\n", 0, 0.3),
            "t": (
                "python -m pytest -v",
                w.log(w.dice.randrange(150, 600), w.dice.randrange(5)),
                1,
                w.dice.uniform(15, 90),
            ),
            "r": (f"sed -n '1,400p' {path}", w.code(w.dice.randrange(6_000, 20_000)), 0, 0.1),
        }[kind]
        if kind == "t" and number == turns // 2:
            seconds = 400.0  # longer than a provider's cache lives
        out.append(Turn(w.said(), "bash", {"command": command}, output, code, seconds))
    return [*out, Turn(w.said(), "submit", DONE)]


def recorded() -> list[Turn]:
    """The implementer's part of the demonstration's recording."""
    exchanges = ReplayTransport(demo.RECORDING)._recording.exchanges["implementer"]
    results = {m.tool_call_id: m.content for e in exchanges for m in e.history if m.role == "tool"}
    out = []
    for exchange in exchanges:
        reply = exchange.answer
        assert isinstance(reply, Reply)
        (call,) = reply.message.tool_calls
        shown = results.get(call.id, "")
        output = shown.partition("\n")[2] if call.name == "bash" else ""
        code = int("exit code 1" in shown)
        out.append(Turn(reply.message.content, call.name, json.loads(call.arguments), output, code))
    return out


# --- providers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One piece of a prompt: its text and whether a cache breakpoint stands at its end."""

    text: str
    marked: bool = False

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES)


def blocks(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[Block]:
    """A request in the OpenAI shape, as both sides hand it to litellm."""
    out = [
        Block(json.dumps({k: v for k, v in tool.items() if k != "cache_control"}), "cache_control" in tool)
        for tool in tools
    ]
    for message in messages:
        content, marked, parts = message.get("content") or "", "cache_control" in message, []
        if isinstance(content, str):
            parts += [Block(f"{message['role']}: {content}")] if content else []
        else:
            parts += [Block(f"{message['role']}: {part['text']}", "cache_control" in part) for part in content]
        for call in message.get("tool_calls") or ():
            parts.append(Block(f"{call['function']['name']} {call['function']['arguments']}"))
        if marked and parts:
            parts[-1] = Block(parts[-1].text, marked=True)
        out += parts
    return out


@dataclass
class NoCache:
    """A server that charges every token of every call."""

    now: float = 0.0

    def usage(self, sent: list[Block]) -> Usage:
        return Usage(sum(block.tokens for block in sent))


@dataclass
class PrefixCache(NoCache):
    """Automatic: the longest beginning that an earlier request had, in whole steps, from a least size on."""

    step: int = 128
    least: int = 1024
    lives_s: float = 300.0
    seen: list[tuple[float, list[Block]]] = field(default_factory=list)

    def usage(self, sent: list[Block]) -> Usage:
        total = sum(block.tokens for block in sent)
        alive = [before for at, before in self.seen if self.now - at <= self.lives_s]
        same = max((_common(before, sent) for before in alive), default=0) // self.step * self.step
        self.seen.append((self.now, sent))
        return Usage(total, cache_read=same if same >= self.least else 0)


def _common(before: list[Block], now: list[Block]) -> int:
    """Tokens that two prompts begin with."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one.text != other.text:
            pairs = zip(one.text, other.text, strict=False)
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one.text), len(other.text)))
            return count + same // BYTES
        count += one.tokens
    return count


@dataclass
class Breakpoints(NoCache):
    """Anthropic's: at most four marks; a mark finds what was kept at most 20 blocks before it, and keeps itself."""

    least: int = 1024
    lives_s: float = 300.0
    kept: dict[int, float] = field(default_factory=dict)

    def usage(self, sent: list[Block]) -> Usage:
        total = sum(block.tokens for block in sent)
        ends, size, running = [], 0, 0
        for block in sent:
            running, size = hash((running, block.text)), size + block.tokens
            ends.append((running, size))
        marks = [index for index, block in enumerate(sent) if block.marked]
        if len(marks) > 4:
            raise SystemExit(f"{len(marks)} cache marks in one request: the provider refuses more than 4")
        read = 0
        for mark in marks:
            for index in range(mark, max(-1, mark - 21), -1):
                key, upto = ends[index]
                if self.now <= self.kept.get(key, -1.0):
                    read, self.kept[key] = max(read, upto), self.now + self.lives_s
                    break
        last = 0
        for mark in marks:
            key, upto = ends[mark]
            if upto >= self.least:
                self.kept[key], last = self.now + self.lives_s, upto
        return Usage(total, cache_read=read, cache_write=max(0, last - read))


PROVIDERS: dict[str, tuple[str, type[NoCache], dict[str, Any]]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", Breakpoints, {}),
    "openai": ("openai/gpt-5.2", PrefixCache, {}),
    "gemini": ("gemini/gemini-2.5-flash", PrefixCache, {"step": 1}),
    "deepseek": ("deepseek/deepseek-chat", PrefixCache, {"step": 64, "least": 64, "lives_s": 3600.0}),
    "no cache": ("mistral/mistral-large-latest", NoCache, {}),
}
"""Model, cache rules. The last stands for a server without a cache at that price."""


# --- ours ---------------------------------------------------------------------------------------------------


@dataclass
class Bill:
    """What one side used."""

    tokens: int = 0
    read: int = 0
    written: int = 0
    output: int = 0
    nanousd: int = 0
    uncached: int = 0
    calls: int = 0
    steps: int = 0
    submission: Any = None

    def add(self, usage: Usage, model: str) -> None:
        price = TABLE.find(model)
        assert price is not None
        self.calls += 1
        self.tokens, self.output = self.tokens + usage.input, self.output + usage.output
        self.read, self.written = self.read + usage.cache_read, self.written + usage.cache_write
        self.nanousd += cost(usage, price)
        self.uncached += cost(Usage(usage.input, usage.output), price)


class Meter:
    """Port Transport: what ours would send, counted by a provider's rules; the transcript answers."""

    def __init__(self, turns: Iterator[Turn], model: str, cache: NoCache, bill: Bill) -> None:
        self._turns, self._model, self._cache, self._bill = turns, model, cache, bill
        self._wire = LitellmTransport(model=model)
        self._count, self._before = 0, [Block("")]

    def send(self, request: Any, timeout_s: float) -> Reply:
        sent = self._wire._arguments(request, "key", timeout_s, _litellm())
        prompt = blocks(sent["messages"], sent["tools"])
        texts = [block.text for block in prompt]
        self._bill.steps += texts[: len(self._before)] != [b.text for b in self._before] and self._count > 0
        self._before = prompt
        turn = next(self._turns)
        self._count += 1
        usage = _with_output(self._cache.usage(prompt), turn, json.dumps(turn.arguments))
        self._bill.add(usage, self._model)
        self._cache.now += THINKS_S + turn.seconds
        call = ToolCall(f"call_{self._count}", turn.name, json.dumps(turn.arguments))
        return Reply(Message("assistant", turn.text, (call,)), Finish.TOOLS, usage, self._model)


def _with_output(usage: Usage, turn: Turn, arguments: str) -> Usage:
    return Usage(usage.input, tokens(turn.text + turn.name + arguments), usage.cache_read, usage.cache_write)


def ours(turns: list[Turn], model: str, cache: NoCache) -> Bill:
    """The transcript through the real runner."""
    bill, commands = Bill(), iter([turn for turn in turns if turn.name == "bash"])
    with tempfile.TemporaryDirectory() as folder:
        root, kept = Path(folder) / "tree", Folder(1 << 30, str(Path(folder) / "outputs"))
        _lay(root, turns)

        def act(command: Command) -> CommandResult:
            turn = next(commands)
            output = Output(command.keep, kept, command.save)
            output.feed(turn.output.encode())
            head, tail = output.ends()
            saved = kept.finish().replace(folder, "/tmp/.harness-output") if output.saved else ""
            return CommandResult(CommandEnd.EXITED, turn.code, head, tail, output.total, turn.seconds, saved)

        clock, recorder = FakeClock(), ListRecorder()
        client = ModelClient(
            [Route("main", model)],
            lambda _: Meter(iter(turns), model, cache, bill),
            recorder=recorder,
            clock=clock,
            prices=TABLE,
            redact=str,
        )
        runner, limits = Runner(MiniSweLoop()), Limits(len(turns), 10**9, 10**15, 10**6)
        role, budget = replace(runner.role("implementer"), limits=limits), FakeBudget(limits, clock)
        environment = Environment(
            FakeSandbox(root, act=act),
            client,
            recorder,
            clock,
            str,
            history_chars=history_chars([Route("main", model)], TABLE),
        )
        task, stop = Task({**IMPLEMENTER}), Termination(threading.Event())
        ended = runner.run(role, task, environment, stop, budget)
    if ended.ended != "submitted":
        raise SystemExit(f"ours ended {ended.ended}: {ended.detail}")
    charged = sum(event["nanousd"] for event in recorder.of("model.answered"))
    if charged != bill.nanousd or charged != budget.spent().nanousd:
        raise SystemExit(f"the log says {charged} nano-dollars, the provider's rules {bill.nanousd}")
    bill.submission = ended.submission
    return bill


def _lay(root: Path, turns: list[Turn]) -> None:
    """The files that the transcript edits."""
    for turn in turns:
        if turn.name == "edit":
            path = root / turn.arguments["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.writelines(edit["old"] for edit in turn.arguments["edits"])
    root.mkdir(exist_ok=True)


# --- theirs -------------------------------------------------------------------------------------------------


def theirs(turns: list[Turn], model: str, cache: NoCache) -> Bill:
    """The same through mini-swe-agent with its own defaults."""
    import litellm
    import yaml
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.config import builtin_config_dir
    from minisweagent.exceptions import Submitted
    from minisweagent.models import get_model
    from minisweagent.models.utils.actions_toolcall import BASH_TOOL

    bill, script, running = Bill(), iter(turns), [turns[0]]
    config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())

    class Shell:
        def execute(self, action: dict[str, Any]) -> dict[str, Any]:
            del action
            turn = running[0]
            if turn.name == "submit":
                extra = {"exit_status": "Submitted", "submission": turn.arguments}
                raise Submitted({"role": "exit", "content": "", "extra": extra})
            return {"output": turn.output, "returncode": turn.code, "exception_info": ""}

        def get_template_vars(self) -> dict[str, Any]:
            return {"system": "Linux", "release": "6.1", "version": "1", "machine": "x86_64"}

        def serialize(self) -> dict[str, Any]:
            return {}

    def query(messages: list[dict[str, Any]], **_: Any) -> Any:
        turn = running[0] = next(script)
        arguments = json.dumps({"command": turn.shell})
        usage = _with_output(cache.usage(blocks(messages, [BASH_TOOL])), Turn(turn.text, "bash", {}), arguments)
        bill.add(usage, model)
        cache.now += THINKS_S + turn.seconds
        call = {"id": f"call_{bill.calls}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        message = {"role": "assistant", "content": turn.text, "tool_calls": [call]}
        return litellm.ModelResponse(choices=[{"message": message, "finish_reason": "tool_calls"}], model=model)

    speaks = get_model(model, {**config["model"], "cost_tracking": "ignore_errors"})
    speaks._query = query  # its own call of litellm, and nothing before it
    settings = {**config["agent"], "step_limit": 0, "cost_limit": 0.0}
    settings.pop("mode", None)
    agent = DefaultAgent(speaks, Shell(), **settings)
    task = "\n".join(IMPLEMENTER.values())
    bill.submission = agent.run(task)["submission"]
    return bill


# --- both ---------------------------------------------------------------------------------------------------


def main() -> int:
    """Print the table; 1 when a target is missed."""
    shapes = {
        "demo": recorded(),
        "short": transcript("short", 40),
        "logs": transcript("logs", 60),
        "reads": transcript("reads", 45),
        "mixed": transcript("mixed", 80),
    }
    head = ("transcript", "turns", "provider", "input", "cached", "elisions", "ours", "uncached", "mini", "mini input")
    print("{:10} {:>5} {:9} {:>10} {:>6} {:>8} {:>9} {:>15} {:>15} {:>10}".format(*head))
    missed = []
    for shape, turns in shapes.items():
        for provider, (model, rules, settings) in PROVIDERS.items():
            mine, other = ours(turns, model, rules(**settings)), theirs(turns, model, rules(**settings))
            saved, better = mine.uncached / mine.nanousd, other.nanousd / mine.nanousd
            share = mine.read / mine.tokens
            print(
                f"{shape:10} {len(turns):5} {provider:9} {mine.tokens:10} {share:6.0%} {mine.steps:8} {_usd(mine.nanousd):>9} "
                f"{_usd(mine.uncached):>9} {saved:4.1f}x {_usd(other.nanousd):>9} {better:4.2f}x {other.tokens:10}"
            )
            where = f"{shape} at {provider}"
            if mine.submission != turns[-1].arguments or other.submission != turns[-1].arguments:
                missed.append(f"{where}: another submission")
            if provider != "no cache" and len(turns) >= 30 and saved < LEAST_RATIO:
                missed.append(f"{where}: {saved:.2f} times cheaper than uncached, not {LEAST_RATIO:g}")
            least = LARGE_RATIO if shape in LARGE else 1.0
            if len(turns) >= 30 and better < least:
                missed.append(f"{where}: {better:.2f} times cheaper than mini-swe-agent, not {least:g}")
    for line in missed:
        print(f"missed: {line}")
    return int(bool(missed))


def _usd(nanousd: int) -> str:
    return f"${nanousd / 1e9:.4f}"


if __name__ == "__main__":
    raise SystemExit(main())
