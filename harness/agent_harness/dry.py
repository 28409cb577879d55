"""Looking ahead: what a run would do, and the recorder of what is not recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_harness.gates.checks import CheckReport
from agent_harness.types import Event, Item, Limits


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run of an item would do. `worst_nanousd` is the most it could cost."""

    item: Item
    base: str
    source: str
    image: str
    checks: tuple[CheckReport, ...]
    problems: tuple[str, ...]
    routes: Mapping[str, tuple[str, ...]]
    limits: Limits
    worst_nanousd: int


class Unrecorded:
    """A Recorder for dry runs: nothing is changed, so nothing is written."""

    def event(self, kind: str, data: Mapping[str, Any], bodies: Mapping[str, str | bytes] | None = None) -> Event:
        """An event that goes nowhere."""
        del bodies
        return Event(0, 0, kind, "", "", data, "")
