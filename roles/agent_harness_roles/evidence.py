"""What a role run really did: its validator judges a submission by it, never by what the model says it did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of this run and the output the model was shown. `seq` is its `command.ended` event."""

    seq: int
    command: str
    output: str
    ok: bool


@dataclass(slots=True)
class Evidence:
    """Commands in order, and the paths the edit tool changed."""

    commands: list[Shown] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)

    @property
    def looked(self) -> bool:
        """At least one command of the run succeeded."""
        return any(shown.ok for shown in self.commands)
