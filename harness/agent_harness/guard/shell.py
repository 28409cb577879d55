"""What a shell would know while a command runs, as far as it stands in the command itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from posixpath import join, normpath
from typing import TYPE_CHECKING

from agent_harness.guard.lexing import Piece
from agent_harness.guard.nouns import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

WORKSPACE = "/workspace"
LONGEST = 64 << 10
"""Characters of a value that are followed; a longer one counts as unknown."""


@dataclass(slots=True)
class Shell:
    """Variables, functions, aliases and files that the command itself set. `fuel` bounds all work: it shrinks with
    every command and every text looked at, so that no command takes longer than in proportion to its length."""

    fuel: int
    variables: dict[str, str] = field(default_factory=dict)
    functions: dict[str, tuple[Piece, Node]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    git_aliases: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    cwd: str = WORKSPACE

    def burn(self, amount: int) -> bool:
        """Take fuel; False when there is none left."""
        self.fuel -= amount
        return self.fuel > 0

    def path(self, word: str) -> str:
        """A path, absolute in the container."""
        return normpath(join(self.cwd, word))

    def value(self, name: str) -> str | None:
        """A parameter's value; None where only the running shell knows it."""
        if name in {"@", "*"}:
            return " ".join(self.positional)
        if name.isdecimal() and name != "0":
            at = int(name[:6]) - 1
            return self.positional[at] if at < len(self.positional) else ""
        return self.variables.get(name)

    def assign(self, name: str, value: str, *, append: bool = False) -> None:
        """Set a variable."""
        whole = self.variables.get(name, "") + value if append else value
        self.variables[name] = whole if len(whole) <= LONGEST and self.burn(len(whole)) else UNKNOWN
