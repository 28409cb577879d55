"""What was used, added up from events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Self

from agent_harness.types import Event, Spend
from agent_harness.types.kinds import Kind

TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")


@dataclass(frozen=True, slots=True)
class Cost:
    """A sum over events. `steps` are model answers, good or malformed; `input` counts cached tokens too.

    `nanousd` holds what has a price; `unpriced` counts the answers that have none, so that zero never means unknown.
    `dangling` counts model calls and commands that were announced and of which no end was seen.
    """

    steps: int = 0
    failed_calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    nanousd: int = 0
    unpriced: int = 0
    model_seconds: float = 0.0
    commands: int = 0
    command_seconds: float = 0.0
    dangling: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def spend(self) -> Spend:
        """The same in a budget's terms."""
        return Spend(self.steps, self.input + self.output, self.nanousd)

    @classmethod
    def of(cls, event: Event) -> Self:
        """What one event adds; nothing for most."""
        data, kind = event.data, event.kind
        seconds = float(data.get("seconds") or 0.0)
        match kind:
            case Kind.MODEL_ASKED | Kind.COMMAND_STARTED:
                return cls(dangling=1)
            case Kind.COMMAND_ENDED:
                return cls(commands=1, dangling=-1, command_seconds=seconds)
            case Kind.MODEL_ANSWERED | Kind.MODEL_FAILED:
                usage, nanousd = data.get("usage") or {}, data.get("nanousd")
                sums: dict[str, Any] = {name: int(usage.get(name) or 0) for name in TOKENS}
                sums["steps" if kind == Kind.MODEL_ANSWERED else "failed_calls"] = 1
                unpriced = int(nanousd is None or bool(data.get("unpriced")))
                return cls(**sums, nanousd=nanousd or 0, unpriced=unpriced, model_seconds=seconds, dangling=-1)
        return cls()


def tally(events: Iterable[Event], by: Callable[[Event], Any] = lambda _: "") -> dict[Any, Cost]:
    """The sums per group; `by` is `of_item`, `of_run`, `of_role`, or any other name for an event's group."""
    sums: dict[Any, Cost] = {}
    for event in events:
        if (cost := Cost.of(event)) != Cost():
            sums[by(event)] = sums.get(by(event), Cost()) + cost
    return sums


of_item, of_run = attrgetter("item"), attrgetter("run")
"""Group by item, and by run."""


def of_role(event: Event) -> str:
    """Groups by role; a command counts for the role run or gate that it ran in."""
    return str(event.data.get("role") or event.data.get("where") or "")
