"""A script's text as trees of the shell's grammar (tree-sitter-bash), with here-documents taken out.

The grammar misreads two here-documents on one line and operators after one, and its time grows with the square of a
long pipeline. A scanner that knows quotes and parentheses only therefore goes first. Offsets stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

PIECE = 4096
"""Characters, here-documents left out, above which a script is cut between statements."""
FORCED = 4 * PIECE
"""Characters after which it is cut wherever that is."""

_BASH = Language(tree_sitter_bash.language())
_NOT_ASCII = re.compile(r"[^\x01-\x7f]")
_BRACES = re.compile(r"(?<![^\s;&|(])\{[\w./:@%+=-]*(?:,[\w./:@%+=-]*)+\}(?![^\s;&|)])")

_PLAIN = re.compile(
    r"\\.|\$'(?:[^'\\]|\\.)*'?|'[^']*'?|\"|\$\(\(|\$\(|\(\(|<<<|<<-?|[()`\n;&|]|(?<![^\s;&|()`])#[^\n]*", re.DOTALL
)
_QUOTED = re.compile(r'\\.|"|\$\(\(|\$\(|`', re.DOTALL)
_DELIMITER = re.compile(r"""[ \t]*((?:\\.|'[^']*'|"[^"]*"|[^\s;&|<>()'"\\`])+)""")
_SUM = ") "
"""Closes an arithmetic expression, in which `<<` shifts."""
_CLOSED_BY = {'"': ['"'], "`": ["`"], "$(": [")"], "(": [")"], "$((": [_SUM, _SUM], "((": [_SUM, _SUM]}


class Piece(NamedTuple):
    """A part of a script: its text and tree, where it starts, and the script's here-documents by the offset of `<<`:
    their text, and whether it is literal because the delimiter was quoted."""

    text: str
    root: Node
    base: int
    heredocs: dict[int, tuple[str, bool]]

    def raw(self, node: Node) -> str:
        """A node's text as written."""
        return self.text[node.start_byte : node.end_byte]


def whole(text: str) -> Piece:
    """A script in one piece, its here-documents left to the grammar."""
    return Piece(text, Parser(_BASH).parse(_readable(text)).root_node, 0, {})


def pieces(text: str) -> Iterator[Piece]:
    """A script in parts that are parsed one by one; ordinary ones are one part."""
    scan = _Scan(text)
    short = sum(map(len, scan.readable.split())) <= PIECE
    for start, end in [(0, len(text))] if short else pairwise(_bounds(scan.cuts, len(text))):
        yield Piece(text[start:end], Parser(_BASH).parse(scan.readable[start:end]).root_node, start, scan.heredocs)


def _readable(text: str) -> bytes:
    """The text for the parser: a byte for every character, and brace lists, which it takes for groups, as words."""
    listed = _BRACES.sub(lambda found: re.sub("[{},]", " ", found[0]), text)
    return _NOT_ASCII.sub("x", listed).encode()


def _bounds(cuts: list[int], end: int) -> list[int]:
    bounds, last = [0], 0
    for cut in [*cuts, end]:
        if cut - bounds[-1] > PIECE and last > bounds[-1]:
            bounds.append(last)
        bounds += range(bounds[-1] + FORCED, cut, FORCED)
        last = cut
    return [*bounds, end]


class _Scan:
    """One pass over a script: its here-documents, and the ends of statements outside of quotes and parentheses."""

    def __init__(self, text: str) -> None:
        self.heredocs: dict[int, tuple[str, bool]] = {}
        self.cuts: list[int] = []
        self.readable = bytearray(_readable(text))
        self._text, self._at = text, 0
        self._open: list[str] = []
        self._pending: list[tuple[int, str, str]] = []
        while match := (_QUOTED if self._open[-1:] == ['"'] else _PLAIN).search(text, self._at):
            self._at = match.end()
            self._token(match[0], match.start())

    def _token(self, token: str, start: int) -> None:
        top = self._open[-1] if self._open else ""
        if token == top.strip():
            self._open.pop()
        elif token in _CLOSED_BY:
            self._open += [top] if token == "(" and top == _SUM else _CLOSED_BY[token]
        elif token in {"<<", "<<-"} and top != _SUM:
            self._heredoc(token, start)
        elif token in "\n;&|":
            if token == "\n":
                self._bodies()
            if not self._open:
                self.cuts.append(self._at)

    def _heredoc(self, token: str, start: int) -> None:
        """`<<EOF` becomes a file to the parser; its text is on the next lines."""
        if match := _DELIMITER.match(self._text, self._at):
            self._at = match.end()
            self._pending.append((start, match[1], r"\t*" if token == "<<-" else ""))
            self.readable[start : self._at] = b"<".ljust(self._at - start, b"_")

    def _bodies(self) -> None:
        for start, delimiter, tabs in self._pending:
            name = re.sub(r"""['"\\]""", "", delimiter)
            found = re.compile(rf"^{tabs}{re.escape(name)}$", re.MULTILINE).search(self._text, self._at)
            body_end, end = found.span() if found else (len(self._text),) * 2
            body = self._text[self._at : body_end]
            self.heredocs[start] = (re.sub(r"(?m)^\t+", "", body) if tabs else body, name != delimiter)
            self.readable[self._at : end] = b" " * (end - self._at)
            self._at = min(end + 1, len(self._text))
        self._pending = []
