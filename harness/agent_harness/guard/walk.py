"""Walks a command's tree in the order a shell would, and finds every program it would run."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent_harness.guard.grammar import heredoc_body, parse
from agent_harness.guard.lexing import Piece, pieces
from agent_harness.guard.nouns import UNKNOWN, Policy, Program, Refusal, Screening, Span
from agent_harness.guard.rules import git_words, judge
from agent_harness.guard.shell import WORKSPACE, Shell
from agent_harness.guard.unwrap import Inner, Note, Script, inside
from agent_harness.guard.words import REDIRECTS, Reader

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 16
MOST_REFUSALS = 20
_FUEL, _FUEL_PER_CHARACTER, _COMMAND = 60_000, 12, 12
_GLOBBED = ("git", "sudo", "su", "docker", "mount", "chroot", "bash", "sh", "env")
"""Programs that a pattern such as `/usr/bin/g?t` is tried on."""
_BACKTICKS = re.compile(r"\\.|`((?:[^`\\]|\\.)*)`", re.DOTALL)
Step = tuple["Node", str | None] | Callable[[], None]


class Walk:
    """The screening of one command."""

    def __init__(self, command: str, policy: Policy) -> None:
        self._policy, self._depth = policy, 0
        self._shell = Shell(_FUEL + _FUEL_PER_CHARACTER * len(command))
        self._programs: list[Program] = []
        self._refused: list[Refusal] = []
        self._notes: dict[str, None] = {}
        self._script(command, None)

    def screening(self) -> Screening:
        """What was found."""
        return Screening(tuple(self._programs), tuple(self._refused), tuple(self._notes))

    def _deeper(self, act: Callable[[], None]) -> None:
        if self._depth >= DEEPEST:
            self._notes["nested too deeply to be looked through"] = None
            return
        self._depth += 1
        act()
        self._depth -= 1

    def _script(self, text: str, span: Span | None) -> None:
        for piece in pieces(text):
            if self.affordable(len(piece.text)):
                _Descent(self, piece, span).go(parse(piece.text), None)

    @property
    def shell(self) -> Shell:
        """What the command itself set so far."""
        return self._shell

    def affordable(self, amount: int = _COMMAND) -> bool:
        """Take fuel, a command's unless said otherwise; False, with a note, where none is left."""
        if self._shell.burn(amount):
            return True
        self._notes["too much to be looked through to the end"] = None
        return False

    def script(self, text: str, span: Span) -> None:
        """Screen a nested script."""
        self._deeper(lambda: self._script(text, span))

    def run(self, argv: list[str], stdin: str | None, span: Span) -> None:
        """Screen one program with its words, and whatever it runs."""
        if argv:
            self._deeper(lambda: self._run(argv, stdin, span))

    def _run(self, argv: list[str], stdin: str | None, span: Span) -> None:
        if not self.affordable():
            return
        if argv[0].strip(UNKNOWN) == "":
            self.run(argv[1:], stdin, span)
            return
        words = [self._name(argv[0]), *(word.replace(UNKNOWN, "") or UNKNOWN for word in argv[1:])]
        if words[0] in self._shell.functions:
            self._call(words, span, stdin)
            return
        if (alias := self._shell.aliases.pop(words[0], None)) is not None:
            self.script(" ".join([alias, *argv[1:]]), span)
            self._shell.aliases[words[0]] = alias
            return
        aliases = dict(self._shell.git_aliases)
        if words[0] == "git" or words[0].startswith("git-"):
            words, more = git_words(words)
            aliases |= more
        self._found(Program(tuple(words), span))
        self._remember(words)
        if words[0] == "git":
            self._git(words, aliases, span)
        for inner in inside(words if words[0] != argv[0] else argv, stdin, self._shell):
            self._inner(inner, stdin, span)

    def _found(self, program: Program) -> None:
        self._programs.append(program)
        rule = judge(list(program.words), self._policy.refuse)
        if rule is None or len(self._refused) >= MOST_REFUSALS:
            return
        told = " ".join(program.words)
        if not any(fnmatchcase(told, pattern) for pattern in self._policy.allow):
            self._refused.append(Refusal(rule.name, program, rule.why, rule.way_out))

    def _inner(self, inner: Inner, stdin: str | None, span: Span) -> None:
        if isinstance(inner, Note):
            self._notes[inner.text] = None
        elif isinstance(inner, Script):
            before, self._shell.positional = self._shell.positional, inner.positional
            self.script(inner.text, span)
            self._shell.positional = before
        else:
            self.run(inner, stdin, span)

    def _call(self, words: list[str], span: Span, stdin: str | None) -> None:
        piece, body = self._shell.functions[words[0]]
        before, self._shell.positional = self._shell.positional, tuple(words[1:])
        self._deeper(lambda: _Descent(self, piece, span).go(body, stdin))
        self._shell.positional = before

    def _git(self, words: list[str], aliases: dict[str, str], span: Span) -> None:
        sub, rest = (words[1] if words[1:] else ""), words[2:]
        if sub == "config" and (keys := [n for n, word in enumerate(rest[:-1]) if word.startswith("alias.")]):
            self._shell.git_aliases[rest[keys[0]][6:]] = rest[keys[0] + 1]
        elif alias := aliases.get(sub):
            text = alias[1:] if alias.startswith("!") else f"git {alias}"
            self.script(" ".join([text, *rest]), span)
        elif sub == "bisect" and rest[:1] == ["run"]:
            self.run(rest[1:], None, span)
        elif sub == "submodule" and "foreach" in rest:
            self.script(" ".join(word for word in rest[rest.index("foreach") + 1 :] if word[:2] != "--"), span)

    def _name(self, word: str) -> str:
        """A program's plain name; a file of the workspace keeps its path, for it is the project's own."""
        word = word.replace(UNKNOWN, "")
        if "/" in word:
            path = self._shell.path(word)
            if path in self._shell.copies:
                return self._shell.copies[path]
            if path.startswith((WORKSPACE + "/", "/tmp/", "/scratch/")):  # noqa: S108 - the sandbox's, not ours
                return path
            word = path.rsplit("/", 1)[-1]
        if {"*", "?", "["} & set(word) and len(word) > 2:
            return next((name for name in _GLOBBED if fnmatchcase(name, word)), word)
        return word

    def _remember(self, words: list[str]) -> None:
        """What a builtin or a plain copy leaves for the commands after it."""
        plain = [word for word in words[1:] if not word.startswith("-")]
        if words[0] in {"cd", "pushd"} and plain:
            self._shell.cwd = self._shell.path(plain[0])
        elif words[0] == "alias":
            for word in plain:
                key, mark, value = word.partition("=")
                self._shell.aliases |= {key: value} if mark else {}
        elif words[0] in {"cp", "ln", "install", "mv"} and len(plain) == 2 and "/bin/" in plain[0]:
            self._shell.copies[self._shell.path(plain[1])] = plain[0].rsplit("/", 1)[-1]
        elif words[0] == "unset":
            for word in plain:
                self._shell.variables.pop(word, None)


class _Descent:
    """Goes down one tree. Uses a stack of its own: a command may nest deeper than Python can."""

    def __init__(self, walk: Walk, piece: Piece, span: Span | None) -> None:
        self._walk, self._piece, self._span = walk, piece, span
        self._reader = Reader(piece, walk.shell)
        self._stack: list[Step] = []

    def go(self, root: Node, stdin: str | None) -> None:
        """Everything below a node."""
        self._stack.append((root, stdin))
        while self._stack and self._walk.affordable(1):
            step = self._stack.pop()
            if callable(step):
                step()
                continue
            node, fed = step
            getattr(self, f"_on_{node.type}", self._other)(node, fed)

    def _push(self, nodes: list[Node], stdin: str | None = None) -> None:
        self._stack += [(node, stdin) for node in reversed(nodes) if node.named_child_count or node.type in REDIRECTS]

    def _other(self, node: Node, stdin: str | None) -> None:
        self._push(node.named_children, stdin)

    def _on_command(self, node: Node, stdin: str | None) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child)
        fed = self._reader.stdin(node)
        base = self._piece.base
        span = self._span or (base + node.start_byte, base + node.end_byte)
        self._walk.run(self._reader.argv(node), stdin if fed is None else fed, span)
        self._push([child for child in node.named_children if child.type != "variable_assignment"] + _values(node))

    def _on_pipeline(self, node: Node, stdin: str | None) -> None:
        steps: list[tuple[Node, str | None]] = []
        for stage in node.named_children:
            stdin = self._reader.output(steps[-1][0], steps[-1][1]) if steps else stdin
            steps.append((stage, stdin))
        self._stack += reversed(steps)

    def _on_redirected_statement(self, node: Node, stdin: str | None) -> None:
        body = node.child_by_field_name("body")
        fed = self._reader.stdin(node)
        if body and (path := self._reader.written(node)):
            self._walk.shell.files[path] = self._reader.output(node)
        self._push([child for child in node.named_children if child != body])
        if body:
            self._stack.append((body, stdin if fed is None else fed))

    def _on_function_definition(self, node: Node, _: str | None) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name and body:
            self._walk.shell.functions[self._reader.raw(name)] = (self._piece, body)

    def _on_variable_assignment(self, node: Node, _: str | None) -> None:
        self._assign(node)
        self._push(_values(node))

    def _assign(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name:
            key = self._reader.raw(name).split("[", 1)[0]
            append = any(child.type == "+=" for child in node.children)
            self._walk.shell.assign(key, self._reader.text(value) if value else "", append=append)

    def _on_for_statement(self, node: Node, stdin: str | None) -> None:
        body, name = node.child_by_field_name("body"), node.child_by_field_name("variable")
        listed = node.children_by_field_name("value")
        values = [field for one in listed for field in self._reader.fields(one)][:16] or [UNKNOWN]
        for value in reversed(values):
            if body:
                self._stack.append((body, stdin))
            if name:
                self._stack.append(self._setting(self._reader.raw(name), value))
        self._push(listed)

    def _setting(self, name: str, value: str) -> Callable[[], None]:
        return lambda: self._walk.shell.assign(name, value)

    def _on_file_redirect(self, node: Node, stdin: str | None) -> None:
        doc = self._piece.heredocs.get(node.start_byte)
        if doc is None or doc.literal or not ("$(" in doc.body or "`" in doc.body or "${" in doc.body):
            self._push(node.named_children, stdin)
            return
        span = self._span or (self._piece.base + node.start_byte, self._piece.base + node.end_byte)
        for found in _BACKTICKS.finditer(doc.body):
            if found[1]:
                self._walk.script(found[1], span)
        if self._walk.shell.burn(len(doc.body)):
            piece, body = heredoc_body(doc.body)
            if body:
                self._walk._deeper(lambda: _Descent(self._walk, piece, span).go(body, None))  # noqa: SLF001


def _values(node: Node) -> list[Node]:
    """The values of a node's assignments, or of an assignment itself."""
    nodes = [node] if node.type == "variable_assignment" else node.named_children
    return [value for one in nodes if one.type == "variable_assignment" and (value := one.child_by_field_name("value"))]
