"""What the guard speaks of: programs a command would run, rules, refusals."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "\0"
"""Stands in a word for what only a running shell would know."""
SPLIT = "\1"
"""Stands where a text falls into words: before every element of a list, and where a shell splits an expansion."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program that the command would run, with its words as the shell would hand them over."""

    words: tuple[str, ...]
    at: tuple[int, int]
    """First character and the one after the last, in the screened command."""

    @property
    def shown(self) -> str:
        """The words on one line, what is unknown as `…`; cut at 200 characters."""
        text = " ".join(" ".join(self.words).replace(UNKNOWN, "…").split())
        return text if len(text) <= 200 else text[:199] + "…"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A program that a rule refuses: which rule, why, and what to do instead."""

    rule: str
    program: Program
    why: str
    way_out: str

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"rule `{self.rule}` refuses `{self.program.shown}`: {self.why}. {self.way_out}"


@dataclass(frozen=True, slots=True)
class Screening:
    """What was found in one command. `notes` name what could not be looked into; they refuse nothing."""

    programs: tuple[Program, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The observation that a refused command gets; empty where nothing is refused."""
        if not self.refused:
            return ""
        told = "\n".join(list(dict.fromkeys(f"- {one.text}" for one in self.refused))[:20])
        return f"refused, nothing of this command was run:\n{told}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rules refuse, and which programs are let through all the same: shell patterns over a program's words
    joined by spaces, such as `git push /tmp/*`."""

    refuse: tuple[str, ...]
    allow: tuple[str, ...] = ()
