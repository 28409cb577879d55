"""What a role run really did: its validator judges a submission by it, never by what the model says it did."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

TELLING = 4
"""Characters a line needs to show that its file was printed."""
_SEARCH = re.compile(r"(?:^|[\s;&|(])(?:rg|[ef]?grep|zgrep|find|fd|ag|git\s+(?:grep|ls-files|log))\s")
_SAYS = re.compile(r"(?<![0-9&<])>(?!&)|<<|\b(?:echo|printf?|tee|write|write_text)\b")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of this run and the output the model was shown. `seq` is its `command.ended` event."""

    seq: int
    command: str
    output: str
    ok: bool

    def holds(self, texts: Iterable[str]) -> bool:
        """Any of the texts stands in the command or its output."""
        return any(text and (text in self.output or text in self.command) for text in texts)


NOTHING = Shown(0, "", "", ok=False)


@dataclass(slots=True)
class Evidence:
    """Commands in order, and the paths the edit tool changed. `opening` is what the task said, cited as event 0.
    `accepted` are the submissions so far, `refused` how many were refused since the last of them."""

    opening: Shown = NOTHING
    commands: list[Shown] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    accepted: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0

    @property
    def looked(self) -> bool:
        """At least one command of the run succeeded."""
        return any(shown.ok for shown in self.commands)

    def at(self, number: int) -> Shown | None:
        """What a role cites as `[event N]` (1.0 is a whole number in JSON); None where this run had no such event."""
        seen = (self.opening, *self.commands)
        return seen[int(number)] if 0 <= number < len(seen) else None

    def cited(self, numbers: Sequence[int]) -> tuple[list[Shown], str]:
        """The cited events, or what is wrong with one of the numbers."""
        unknown = [str(number) for number in numbers if self.at(number) is None]
        if unknown:
            return [], f"there is no event {', '.join(unknown)} in this run (the last is {len(self.commands)})"
        return [shown for number in numbers if (shown := self.at(number))], ""

    def own(self, number: int, text: str) -> bool:
        """Whether a text may be the model's own: a command up to that event says it or writes it down."""
        until = self.commands[: int(number)]
        return any(text in one.command and _SAYS.search(one.command) for one in until)

    def searched(self, numbers: Sequence[int], text: str) -> bool:
        """One of the cited events is a search for the text that printed nothing with it: what a claim of absence
        rests on."""
        searches = (shown for shown in self.cited(numbers)[0] if _SEARCH.search(shown.command))
        return any(text in shown.command and text not in shown.output for shown in searches)


def telling(text: str) -> list[str]:
    """The lines of a text that are long enough to show where they come from."""
    return [line.strip() for line in text.split("\n") if len(line.strip()) >= TELLING]
