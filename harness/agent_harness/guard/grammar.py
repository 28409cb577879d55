"""The shell's grammar: tree-sitter with tree-sitter-bash, imported when the first command is screened."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from agent_harness.guard.lexing import Piece

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_NOT_ASCII = re.compile(r"[^\x01-\x7f]")
_BRACES = re.compile(r"(?<!\$)\{[\w./:@%+=-]*,[\w./:@%+=,-]*\}")
_END = "HARNESS_END_OF_BODY"


@cache
def _bash() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(text: str) -> Node:
    """The root of a script's tree. Its byte offsets are offsets of characters: what is not ASCII is replaced by a
    letter for the parser, and so are brace lists, which it would take for groups."""
    from tree_sitter import Parser

    plain = _BRACES.sub(lambda found: "x" * len(found[0]), _NOT_ASCII.sub("x", text))
    return Parser(_bash()).parse(plain.encode()).root_node


def heredoc_body(body: str) -> tuple[Piece, Node | None]:
    """A here-document whose delimiter was not quoted, as the node in which its expansions stand."""
    piece = Piece(f"cat <<{_END}\n{body}\n{_END}\n")
    root = parse(piece.text)
    redirects = [one for child in root.named_children for one in child.children_by_field_name("redirect")]
    found = [one for redirect in redirects for one in redirect.named_children if one.type == "heredoc_body"]
    return piece, found[0] if found else None
