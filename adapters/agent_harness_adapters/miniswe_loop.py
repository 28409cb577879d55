"""The bounded loop is mini-swe-agent's `DefaultAgent`, driven through one small object of ours.

As its model it asks our host; as its environment it carries a turn out. Its own step, cost and time limits are off
(ours are hard and sit in the budget), its bound on malformed replies in a row is on. Its message dicts stay in this
file: ours ride inside them and come out as they went in.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from agent_harness.ports import LoopHost, Turn
from agent_harness.types import Message

_IMPORTING = threading.Lock()
_OPENING = 2  # placeholders that DefaultAgent.run puts first, for the system and the task message
_EXIT = {"role": "exit", "content": "", "extra": {}}


class MiniSweLoop:
    """Port `Loop`. Holds no state between runs."""

    def run(self, opening: Sequence[Message], host: LoopHost, max_malformed: int) -> bool:
        """Drive `host` from `opening`; True when a turn ended the run, False after too many malformed turns."""
        if max_malformed < 1:
            raise ValueError("max_malformed must be at least 1: a run without a bound may never end")
        agent_class, format_error, submitted = _vendor()

        class Agent(agent_class):  # type: ignore[misc, valid-type]  # the vendor's class is Any here
            """DefaultAgent without its trajectory file: it would serialise the whole history at every step."""

            def save(self, path: object, *extra_dicts: object) -> dict[str, Any]:  # noqa: ARG002 - its signature
                return {}

        bridge = _Bridge(tuple(opening), host, format_error, submitted)
        Agent(
            bridge,
            bridge,
            system_template="",
            instance_template="",
            step_limit=0,
            cost_limit=0.0,
            wall_time_limit_seconds=0,
            max_consecutive_format_errors=max_malformed,
        ).run()
        return bridge.over


class _Bridge:
    """What DefaultAgent takes for a model, each question to which is one to the host, and for an environment, which
    carries out one turn and raises Submitted when the run is over."""

    def __init__(
        self, opening: tuple[Message, ...], host: LoopHost, format_error: type[Exception], submitted: type[Exception]
    ) -> None:
        self._opening, self._host, self._format_error, self._submitted = opening, host, format_error, submitted
        self.over = False

    def query(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        history = (*self._opening, *(m["extra"]["message"] for m in messages[_OPENING:]))
        turn = self._host.ask(history)
        asked = _wrap(turn.message)
        if turn.problems:
            raise self._format_error(asked, *map(_wrap, turn.problems))
        asked["extra"]["actions"] = [turn]  # one action: the host carries out a whole turn, in order
        return asked

    def execute(self, turn: Turn) -> dict[str, Any]:
        results, self.over = self._host.act(turn)
        shown = [_wrap(result) for result in results]
        if self.over:
            raise self._submitted(*shown, _EXIT)
        return {"results": shown}

    def format_message(self, **fields: Any) -> dict[str, Any]:
        return fields

    def format_observation_messages(self, _: object, outputs: list[dict[str, Any]], __: object) -> list[dict[str, Any]]:
        return [shown for output in outputs for shown in output["results"]]

    def get_template_vars(self) -> dict[str, Any]:
        return {}


def _wrap(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content, "extra": {"message": message}}


def _vendor() -> tuple[Any, Any, Any]:
    """DefaultAgent, FormatError and Submitted. Imported with an empty private folder as its configuration."""
    with _IMPORTING, ExitStack() as around:
        if "minisweagent.agents.default" not in sys.modules:
            empty = around.enter_context(tempfile.TemporaryDirectory(prefix="agent-harness-mini-"))
            around.enter_context(_variables({"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": empty}))
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.exceptions import FormatError, Submitted

        return DefaultAgent, FormatError, Submitted


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a moment, and put back exactly what was there."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)
