"""Reads words as the shell would: quotes, escapes, braces, and expansions whose value stands in the command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_harness.guard.grammar import heredoc_body
from agent_harness.guard.lexing import Heredoc, Piece
from agent_harness.guard.nouns import UNKNOWN
from agent_harness.guard.produce import PRODUCERS, produced, unescape
from agent_harness.guard.shell import LONGEST, Shell

if TYPE_CHECKING:
    from tree_sitter import Node

Part = tuple[str, str]
"""Text, and its kind: `q` quoted, `l` unquoted literal, `x` unquoted expansion (the shell splits it)."""

DEEPEST = 24
REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_BLOCKS = frozenset({"subshell", "compound_statement", "list", "command_substitution", "process_substitution"})
_EXPANSION = re.compile(r"\$\{(\w+|[@*])(?:\[[@*0]\])?(?:(:?[-=+])(.*)|:(\d+)(?::(\d+))?)?\}", re.DOTALL)
_EACH = re.compile(r'"\$(@|\{@\}|\{\w+\[@\]\})"')
"""Quoted, and still a word for every element."""
_BRACE = re.compile(r"(?<!\$)\{([^{}]*,[^{}]*)\}")


class Reader:
    """Reads the words of one piece of a script. Never runs anything: what it cannot know is UNKNOWN."""

    def __init__(self, piece: Piece, shell: Shell) -> None:
        self._piece, self._shell, self._depth = piece, shell, 0
        self._readers: dict[str, Callable[[Node], Part]] = {
            "raw_string": lambda node: (self.raw(node)[1:-1], "q"),
            "ansi_c_string": lambda node: (unescape(self.raw(node)[2:-1]), "q"),
            "simple_expansion": lambda node: (self._expansion(node), "x"),
            "expansion": lambda node: (self._expansion(node), "x"),
            "command_substitution": lambda node: (self.output(node).rstrip("\n"), "x"),
            "process_substitution": lambda node: (self._substituted(node), "q"),
            "arithmetic_expansion": lambda _: (UNKNOWN, "q"),
            "brace_expression": lambda _: (UNKNOWN, "q"),
        }

    def raw(self, node: Node) -> str:
        """A node's text as written."""
        return self._piece.text[node.start_byte : node.end_byte]

    def text(self, node: Node) -> str:
        """A word's value where it is not split, as in an assignment."""
        if node.type == "array":
            return " ".join(self.text(one) for one in node.named_children)
        return "".join(text for text, _ in self._parts(node))

    def argv(self, command: Node) -> list[str]:
        """A simple command's words. Parts with nothing but a continued line between them are one word."""
        words: list[list[Part]] = []
        end = -1
        for child in command.children:
            if child.type in REDIRECTS or child.type == "variable_assignment":
                continue
            parts = self._parts(child)
            if words and self._piece.text[end : child.start_byte] in {"", "\\\n"}:
                words[-1] += parts
            else:
                words.append(parts)
            end = child.end_byte
        return [field for word in words for field in self._fields(word)]

    def fields(self, node: Node) -> list[str]:
        """The words that one word becomes."""
        return self._fields(self._parts(node))

    def stdin(self, command: Node) -> str | None:
        """What a command's own redirections feed it; None where there is none."""
        found = None
        for redirect in command.children_by_field_name("redirect"):
            if redirect.type == "herestring_redirect":
                found = self.text(redirect.named_children[-1]) + "\n"
            elif doc := self._piece.heredocs.get(redirect.start_byte):
                found = doc.body if doc.literal else self._expanded(doc)
            elif any(one.type == "<" for one in redirect.children):
                path = redirect.child_by_field_name("destination")
                found = self._file(self.text(path)) if path else UNKNOWN
        return found

    def written(self, command: Node) -> str | None:
        """The file that a command's output goes to."""
        for redirect in command.children_by_field_name("redirect"):
            path = redirect.child_by_field_name("destination")
            if path and {">", ">|", ">>"} & {one.type for one in redirect.children}:
                return self._shell.path(self.text(path))
        return None

    def output(self, node: Node, stdin: str | None = None) -> str:
        """What a statement would print, where that is plain from its text (`echo`, `printf`, `cat`, `base64 -d` …)."""
        self._depth += 1
        try:
            found = self._output(node, stdin) if self._depth <= DEEPEST else UNKNOWN
        finally:
            self._depth -= 1
        return found if len(found) <= max(LONGEST, len(self._piece.text)) and self._shell.burn(len(found)) else UNKNOWN

    def _output(self, node: Node, stdin: str | None) -> str:
        if node.type == "command":
            name = node.child_by_field_name("name")
            if not name or "".join(self.fields(name)[:1]).rsplit("/", 1)[-1] not in PRODUCERS:
                return UNKNOWN
            fed = self.stdin(node)
            return produced(self.argv(node), stdin if fed is None else fed, self._file)
        if node.type == "redirected_statement":
            body, fed = node.child_by_field_name("body"), self.stdin(node)
            return self.output(body, stdin if fed is None else fed) if body else ""
        if node.type == "pipeline":
            for stage in node.named_children:
                stdin = self.output(stage, stdin)
            return UNKNOWN if stdin is None else stdin
        if node.type in _BLOCKS:
            redirects = [one for one in node.named_children if one.type in REDIRECTS]
            if redirects:
                fed = self.stdin(node)
                return UNKNOWN if fed is None else fed
            return "".join(self.output(one, stdin) for one in node.named_children[:20])
        return "" if node.type in {"variable_assignment", "declaration_command"} else UNKNOWN

    def _file(self, path: str) -> str:
        return self._shell.files.get(self._shell.path(path), UNKNOWN)

    def _expanded(self, doc: Heredoc) -> str:
        if "$" not in doc.body and "\\" not in doc.body:
            return doc.body
        if not self._shell.burn(len(doc.body)):
            return UNKNOWN
        piece, node = heredoc_body(doc.body)
        return Reader(piece, self._shell)._inside(node, node.start_byte, node.end_byte) if node else doc.body  # noqa: SLF001

    def _fields(self, parts: list[Part]) -> list[str]:
        kinds = {kind for _, kind in parts}
        whole = "".join(text for text, _ in parts)
        if kinds == {"l"} and "{" in whole:
            return _braces(whole)
        if "x" not in kinds:
            return [whole]
        ifs = self._shell.variables.get("IFS", " \t\n")
        fields: list[str] = []
        current: str | None = None
        for text, kind in parts:
            split = re.split(f"[{re.escape(ifs)}]+", text) if kind == "x" and ifs else [text]
            for n, one in enumerate(split):
                if n and current is not None:
                    fields.append(current)
                    current = None
                if one or kind == "q":
                    current = (current or "") + one
        return fields if current is None else [*fields, current]

    def _parts(self, node: Node) -> list[Part]:
        self._depth += 1
        try:
            return self._read(node) if self._depth <= DEEPEST else [(UNKNOWN, "x")]
        finally:
            self._depth -= 1

    def _read(self, node: Node) -> list[Part]:
        kind = node.type
        if kind in {"command_name", "concatenation", "translated_string"}:
            inner = node.children if kind == "concatenation" else node.named_children
            return [part for child in inner for part in self._parts(child)]
        if kind == "string":
            text = self._inside(node, node.start_byte + 1, node.end_byte - 1)
            return [(text, "x" if _EACH.fullmatch(self.raw(node)) else "q")]
        if read := self._readers.get(kind):
            return [read(node)]
        return _literal(self.raw(node))

    def _inside(self, node: Node, start: int, end: int) -> str:
        """The text between two offsets of a node, its expansions replaced."""
        parts, at = [], start
        for child in node.named_children:
            if child.type not in {"string_content", "heredoc_content"}:
                parts += [_soft(self._piece.text[at : child.start_byte]), self.text(child)]
                at = child.end_byte
        return "".join(parts) + _soft(self._piece.text[at:end])

    def _expansion(self, node: Node) -> str:
        raw = self.raw(node)
        if node.type == "simple_expansion":
            found = self._shell.value(raw[1:])
            return UNKNOWN if found is None else found
        match = _EXPANSION.fullmatch(raw)
        if not match:
            return UNKNOWN
        value = self._shell.value(match[1])
        if match[2]:
            return self._default(node, match, value)
        if value is None:
            return " " if match[1] == "IFS" else UNKNOWN
        if match[4]:
            start = int(match[4][:9])
            return value[start : start + int(match[5][:9])] if match[5] else value[start:]
        return value

    def _default(self, node: Node, match: re.Match[str], value: str | None) -> str:
        """`${name:-word}` and its like; an unset name counts as unset, for nobody else can have set it to a program."""
        if (match[2][-1] == "+") == bool(value):
            inner = [one for one in node.named_children if one.type not in {"variable_name", "subscript"}]
            value = "".join(self.text(one) for one in inner)
            if match[2][-1] == "=":
                self._shell.assign(match[1], value)
        return value or ""

    def _substituted(self, node: Node) -> str:
        """`<(command)`: a path from which what the command prints can be read."""
        path = f"/dev/fd/{self._piece.base + node.start_byte}"
        self._shell.files[path] = self.output(node) if node.children[0].type == "<(" else UNKNOWN
        return path


def _literal(raw: str) -> list[Part]:
    """An unquoted word without its backslashes."""
    if "\\" not in raw:
        return [(raw, "l")]
    return [(re.sub(r"\\(\n|.)", lambda found: found[1].strip("\n"), raw, flags=re.DOTALL), "q")]


def _soft(text: str) -> str:
    """Text between double quotes without the backslashes that mean something there."""
    return re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), text) if "\\" in text else text


def _braces(text: str) -> list[str]:
    """`a{b,c}` as `ab ac`; at most 64 words."""
    done: list[str] = []
    waiting = [text]
    while waiting and len(done) + len(waiting) <= 64:
        word = waiting.pop(0)
        if match := _BRACE.search(word):
            waiting = [word[: match.start()] + one + word[match.end() :] for one in match[1].split(",")] + waiting
        else:
            done.append(word)
    return done + waiting
