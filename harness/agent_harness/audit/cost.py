"""What was used, added up from events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

from agent_harness.types import Event, Spend
from agent_harness.types.kinds import Kind


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
        made = _COUNTED.get(event.kind)
        return cls(**made(event)) if made else cls()


def tally(events: Iterable[Event], by: Callable[[Event], str] = lambda _: "") -> dict[str, Cost]:
    """The sums per group; `by` is `of_item`, `of_run`, `of_role`, or any other name for an event's group."""
    sums: dict[str, Cost] = {}
    for event in events:
        cost = Cost.of(event)
        if cost != _NOTHING:
            key = by(event)
            sums[key] = sums.get(key, _NOTHING) + cost
    return sums


def of_item(event: Event) -> str:
    """Groups by item."""
    return event.item


def of_run(event: Event) -> str:
    """Groups by run."""
    return event.run


def of_role(event: Event) -> str:
    """Groups by role; a command counts for the role run or gate that it ran in."""
    return str(event.data.get("role") or event.data.get("where") or "")


def _answered(event: Event) -> dict[str, Any]:
    usage = event.data.get("usage") or {}
    tokens = {name: int(usage.get(name) or 0) for name in _TOKENS}
    return {"steps": 1, "dangling": -1, **tokens, **_money(event), "model_seconds": _seconds(event)}


def _failed(event: Event) -> dict[str, Any]:
    return {"failed_calls": 1, "dangling": -1, **_money(event), "model_seconds": _seconds(event)}


def _ran(event: Event) -> dict[str, Any]:
    return {"commands": 1, "dangling": -1, "command_seconds": _seconds(event)}


def _begun(_: Event) -> dict[str, Any]:
    return {"dangling": 1}


def _money(event: Event) -> dict[str, Any]:
    nanousd = event.data.get("nanousd")
    return {"unpriced": 1} if nanousd is None else {"nanousd": int(nanousd)}


def _seconds(event: Event) -> float:
    return float(event.data.get("seconds") or 0.0)


_NOTHING = Cost()
_TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")
_COUNTED: dict[str, Callable[[Event], dict[str, Any]]] = {
    Kind.MODEL_ASKED: _begun,
    Kind.MODEL_ANSWERED: _answered,
    Kind.MODEL_FAILED: _failed,
    Kind.COMMAND_STARTED: _begun,
    Kind.COMMAND_ENDED: _ran,
}
