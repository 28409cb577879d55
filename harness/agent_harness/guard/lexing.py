"""Makes a command digestible for the grammar: here-documents are taken out, and what is long is cut into pieces.

tree-sitter-bash misreads two here-documents on one line and operators after one, and its time grows with the square
of a long pipeline. A small scanner that knows quotes and parentheses only therefore goes first. It changes no offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

PIECE = 4096
"""Characters, here-documents left out, that are parsed at once; a quarter of it in a huge command."""
_HUGE = 16 * PIECE

_PLAIN = re.compile(r"\\.|\$'(?:[^'\\]|\\.)*'?|'[^']*'?|\"|\$\(\(|\$\(|\(\(|<<<|<<-?|[()`\n;&|#]", re.DOTALL)
_QUOTED = re.compile(r'\\.|"|\$\(\(|\$\(|`', re.DOTALL)
_DELIMITER = re.compile(r"""[ \t]*((?:\\.|'[^']*'|"[^"]*"|[^\s;&|<>()'"\\`])+)""")
_ARITHMETIC = "A"
_OPENS = {'"': '"', "`": "`", "$(": ")", "(": ")", "$((": "AA", "((": "AA"}
_CLOSES = {'"': '"', "`": "`", ")": ")", "A": ")"}


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document's text; `literal` where its delimiter was quoted."""

    body: str
    literal: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a script: its text, where that starts in the script, and its here-documents by the offset of `<<`."""

    text: str
    base: int = 0
    heredocs: dict[int, Heredoc] = field(default_factory=dict)


def pieces(text: str) -> Iterator[Piece]:
    """A script in parts that are parsed one by one; ordinary ones are one part."""
    if len(text) <= PIECE and "<<" not in text:
        yield Piece(text)
        return
    scan = _Scan(text)
    scan.run()
    blank = scan.blanked()
    solid = len(text) - sum(end - start for start, end, _ in scan.blanks)
    size = PIECE if solid <= _HUGE else PIECE // 4
    for start, end in pairwise(_bounds(blank, scan.cuts, size)) if solid > PIECE else [(0, len(text))]:
        part = blank[start:end]
        if part and not part.isspace():
            inside = (
                {at - start: doc for at, doc in scan.heredocs.items() if start <= at < end} if scan.heredocs else {}
            )
            yield Piece(part, start, inside)


def _bounds(text: str, cuts: list[int], size: int) -> list[int]:
    """Where to cut: between statements where that is possible, else between words."""
    bounds, last = [0], 0
    for cut in [*cuts, len(text)]:
        while cut - bounds[-1] > size:
            start = bounds[-1]
            space = text.rfind(" ", start + 1, start + size)
            bounds.append(last if last > start else space if space > 0 else start + size)
        last = cut
    return [*bounds, len(text)]


class _Scan:
    """One pass over a script."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._stack: list[str] = []
        self._pending: list[tuple[int, str, bool, bool]] = []
        self.heredocs: dict[int, Heredoc] = {}
        self.blanks: list[tuple[int, int, str]] = []
        self.cuts: list[int] = []

    def run(self) -> None:
        """Find here-documents, and the ends of statements outside of all quotes and parentheses."""
        while match := (_QUOTED if self._stack[-1:] == ['"'] else _PLAIN).search(self._text, self._at):
            self._at = match.end()
            self._token(match[0], match.start())

    def _token(self, token: str, start: int) -> None:
        top = self._stack[-1] if self._stack else ""
        if token == _CLOSES.get(top):
            self._stack.pop()
        elif token in _OPENS:
            self._stack += top if token == "(" and top == _ARITHMETIC else _OPENS[token]
        elif token in {"<<", "<<-"} and top != _ARITHMETIC:
            self._heredoc(token, start)
        elif token == "#" and self._text[max(start - 1, 0)] in "# \t\n;&|()`":
            end = self._text.find("\n", start)
            self._at = end if end >= 0 else len(self._text)
        elif token in "\n;&|":
            if token == "\n":
                self._bodies()
            if not self._stack:
                self.cuts.append(self._at)

    def _heredoc(self, token: str, start: int) -> None:
        if match := _DELIMITER.match(self._text, self._at):
            self._at = match.end()
            name = re.sub(r"""['"\\]""", "", match[1])
            self._pending.append((start, name, name != match[1], token == "<<-"))
            self.blanks.append((start, self._at, "<" + "_" * (self._at - start - 1)))

    def _bodies(self) -> None:
        for start, name, literal, tabs in self._pending:
            strip = r"\t*" if tabs else ""
            found = re.compile(rf"^{strip}{re.escape(name)}$", re.MULTILINE).search(self._text, self._at)
            body_end, end = found.span() if found else (len(self._text),) * 2
            body = self._text[self._at : body_end]
            self.heredocs[start] = Heredoc(re.sub(r"(?m)^\t+", "", body) if tabs else body, literal)
            self.blanks.append((self._at, end, " " * (end - self._at)))
            self._at = min(end + 1, len(self._text))
        self._pending = []

    def blanked(self) -> str:
        """The script with every here-document gone: `<<EOF` reads as a file, its text as spaces."""
        parts, at = [], 0
        for start, end, instead in sorted(self.blanks):
            parts += [self._text[at:start], instead]
            at = end
        return "".join(parts) + self._text[at:]
