"""Follows a command in the order a shell would, and finds every program it would run.

One walk does it all: it reads words, and runs statements as if they did nothing but print what is plain from their
words. Not seen: what only a running shell knows (files, the environment, what other programs print), and what is handed
to a program that is neither a shell nor Python nor in the table of those that start others.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from itertools import dropwhile, pairwise
from posixpath import join, normpath
from typing import Any

from tree_sitter import Node

from agent_harness.guard.nouns import SPLIT, UNKNOWN, Policy, Program, Refusal
from agent_harness.guard.programs import Script, printed, starts, unescape
from agent_harness.guard.rules import Words, git_words, judge
from agent_harness.guard.source import Piece, pieces, whole

DEEPEST = 72
LONGEST = 64 << 10
"""Characters of a value that are followed; a longer one counts as unknown."""
_FUEL, _FUEL_PER_CHARACTER, _COMMAND = 60_000, 12, 10
_OWN = ("/workspace/", "/tmp/", "/scratch/", "/dev/fd/")  # noqa: S108 - the sandbox's, not ours
_GLOBBED = ("git", "sudo", "su", "docker", "mount", "bash", "sh")
"""Programs that a pattern such as `/usr/bin/g?t` is tried on."""

_EXPANSION = re.compile(r"\$\{?(\w+|[@*])(?:\[[@*0]\])?(?::?[-=](.*)|:(\d+)(?::(\d+))?)?\}?", re.DOTALL)
_HARD = re.compile(r"\\(\n|.)", re.DOTALL)
_SOFT = re.compile(r'\\([$`"\\\n])')


def _bounded(act: Callable[..., str]) -> Callable[..., str]:
    """A step down that is not taken where the walk is too deep already."""

    def bounded(walk: Walk, *args: Any) -> str:
        if walk.depth >= DEEPEST:
            walk.notes["nested too deeply to be looked through"] = None
            return UNKNOWN
        walk.depth += 1
        told = act(walk, *args)
        walk.depth -= 1
        return told

    return bounded


class Walk:
    """The screening of one command. `fuel` bounds all work: it shrinks with every command and every text looked at, so
    that no command takes longer than in proportion to its length."""

    def __init__(self, command: str, policy: Policy) -> None:
        self.notes: dict[str, None] = {}
        self._policy = policy
        self.depth, self._fuel = 0, _FUEL + _FUEL_PER_CHARACTER * len(command)
        self.programs: list[Program] = []
        self.refused: list[Refusal] = []
        self._variables = {"IFS": " \t\n"}
        self._parameters: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._cwd = "/workspace"
        self._nested, self._span, self._piece = 0, (0, 0), whole("")
        self._script(pieces(re.sub(f"[{UNKNOWN}{SPLIT}]", "", command)), None)

    def _affordable(self, amount: int) -> bool:
        """Take fuel; False, with a note, where none is left."""
        self._fuel -= amount
        if self._fuel <= 0:
            self.notes["too much to be looked through to the end"] = None
        return self._fuel > 0

    def _path(self, word: str) -> str:
        return normpath(join(self._cwd, word))[:4096]

    def _read(self, word: str, stdin: str | None) -> str:
        text = stdin if word in {"-", "/dev/stdin"} else self._files.get(self._path(word))
        return text if text and self._affordable(len(text)) else ""

    # What is done returns what it prints. First scripts and programs.

    def _script(self, parts: Iterable[Piece], stdin: str | None, parameters: Words | None = None) -> str:
        before = self._piece, self._parameters, self._nested
        self._nested += 1
        if parameters is not None:
            numbered = {str(n): word for n, word in enumerate(parameters, 1)}
            self._parameters = numbered | {"@": SPLIT.join(["", *parameters]), "*": " ".join(parameters)}
        told = []
        for part in parts:
            if self._affordable(len(part.text)):
                self._piece = part
                told.append(self._block(part.root, stdin))
        self._piece, self._parameters, self._nested = before
        return "".join(told)

    @_bounded
    def _run(self, argv: Words, stdin: str | None) -> str:
        argv = list(dropwhile(lambda word: not word.strip(UNKNOWN), argv))
        if not argv or not self._affordable(_COMMAND + sum(map(len, argv))):
            return UNKNOWN
        first, *rest = [word.replace(UNKNOWN, "") or UNKNOWN for word in argv]
        words = [self._name(first), *rest]
        self._remember(words)
        words = git_words(words)
        for name in (words[0], " ".join(words[:2])):
            if (body := self._functions.pop(name, None)) is not None:  # it is not expanded within itself
                told = self._script(pieces(body), stdin, words[name.count(" ") + 1 :])
                self._functions.setdefault(name, body)
                return told
        program = Program(tuple(words), self._span)
        self.programs.append(program)
        if rule := judge(words, self._policy):
            self.refused.append(Refusal(rule.name, program, rule.why, rule.way_out))
        told = printed(words, lambda path: self._read(path, stdin))
        for inner in starts(words, lambda path: self._read(path, stdin)):
            if not isinstance(inner, Script):
                told = self._run(inner, stdin)
                continue
            if inner.text and not inner.text.strip(f"{UNKNOWN} \n"):
                self.notes["opaque-pipe-to-shell"] = None
            told = self._script(pieces(inner.text), stdin, inner.parameters)
        return told

    def _name(self, word: str) -> str:
        """A program's plain name; a file of the workspace keeps its path, for it is the project's own."""
        path = self._path(word) if "/" in word else word
        if path.startswith(_OWN):
            return path
        name = path.rsplit("/", 1)[-1]
        return next(iter(fnmatch.filter(_GLOBBED, name[:20])), name)

    def _remember(self, words: Words) -> None:
        """What a program leaves for those after it. An alias and a copied program are functions with another name."""
        plain = [word for word in words[1:] if not word.startswith("-")]
        if words[0] in {"cd", "pushd"} and plain:
            self._cwd = self._path(plain[0])
        elif words[0] == "alias":
            for key, mark, value in (word.partition("=") for word in plain):
                self._functions |= {key: f'{value} "$@"'} if mark else {}
        elif words[0] in {"cp", "ln", "mv"} and len(plain) == 2 and "/bin/" in plain[0]:
            self._functions[self._path(plain[1])] = f'{plain[0]} "$@"'
        elif words[0] == "git":
            for word, after in pairwise([*words, ""]):
                key, mark, value = word.partition("=")
                if key.startswith("alias."):
                    body = f"git {value if mark else after}".removeprefix("git !")
                    self._functions[f"git {key[6:]}"] = f'{body} "$@"'

    # Statements.

    @_bounded
    def _block(self, root: Node, stdin: str | None) -> str:
        """The statements below a node, in order. Goes down by a stack of its own: they may nest deeply."""
        told, stack = [], [root]
        while stack and self._affordable(1):
            node = stack.pop()
            if act := getattr(self, f"_on_{node.type}", None):
                told.append(act(node, stdin))
                self._affordable(len(told[-1]))
            else:
                stack += reversed(node.named_children)
        return "".join(told)

    def _on_command(self, node: Node, stdin: str | None) -> str:
        words: list[str] = []
        end = -1
        for child in node.children:
            if child.type == "variable_assignment":
                self._on_variable_assignment(child, None)
            elif not child.type.endswith("_redirect"):
                continued = words and self._piece.text[end : child.start_byte] in {"", "\\\n"}
                before = words.pop() if continued else ""
                words.append(before + self._text(child))
                end = child.end_byte
        stdin, _ = self._redirected(node, stdin)
        self._at(node)
        return self._run([field for word in words for field in _fields(word)], stdin)

    def _at(self, node: Node) -> None:
        """Programs from here on belong to this node, if it stands in the command itself."""
        if self._nested == 1:
            self._span = (self._piece.base + node.start_byte, self._piece.base + node.end_byte)

    def _on_pipeline(self, node: Node, stdin: str | None) -> str:
        for stage in node.named_children:
            stdin = self._block(stage, stdin)
        return stdin or ""

    def _on_redirected_statement(self, node: Node, stdin: str | None) -> str:
        self._at(node)
        fed, path = self._redirected(node, stdin)
        body = node.child_by_field_name("body")
        told = self._block(body, fed) if body else fed or ""
        if path:
            self._files[path] = told
        return told

    def _on_function_definition(self, node: Node, _: str | None) -> str:
        if (name := node.child_by_field_name("name")) and (body := node.child_by_field_name("body")):
            self._functions[self._piece.raw(name)] = self._piece.raw(body)
        return ""

    def _on_variable_assignment(self, node: Node, _: str | None) -> str:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name:
            key = self._piece.raw(name).split("[", 1)[0]
            before = self._variables.get(key, "") if any(child.type == "+=" for child in node.children) else ""
            self._assign(key, before + (self._text(value, True) if value else ""))
        return ""

    def _assign(self, name: str, value: str) -> None:
        self._variables[name] = value if len(value) <= LONGEST and self._affordable(len(value)) else UNKNOWN

    def _on_for_statement(self, node: Node, stdin: str | None) -> str:
        body, name = node.child_by_field_name("body"), node.child_by_field_name("variable")
        listed = [field for one in node.children_by_field_name("value") for field in _fields(self._text(one))]
        told = []
        for value in listed[:16] or [UNKNOWN]:
            if name and body:
                self._assign(self._piece.raw(name), value)
                told.append(self._block(body, stdin))
        return "".join(told)

    def _redirected(self, node: Node, stdin: str | None) -> tuple[str | None, str]:
        """What a statement is fed, and the file that its output goes to."""
        path = ""
        for redirect in node.children_by_field_name("redirect"):
            doc, literal = self._piece.heredocs.get(self._piece.base + redirect.start_byte, ("", True))
            kinds = {child.type for child in redirect.children}
            target = "".join(self._text(one, True) for one in redirect.named_children[-1:])
            if doc:
                stdin = doc if literal else self._expanded(doc)
            elif redirect.type != "file_redirect":
                stdin = target
            elif "<" in kinds:
                stdin = self._read(target, stdin) or UNKNOWN
            elif kinds & {">", ">|", ">>"}:
                path = self._path(target)
        return stdin, path

    def _expanded(self, body: str) -> str:
        """The text of a here-document whose delimiter was not quoted."""
        if not re.search(r"[$`\\]", body):
            return body
        body = re.sub("`([^`]*)`", r"$(\1)", body)
        return self._script([whole(f"<<HARNESS_END\n{body}\nHARNESS_END\n")], None)

    # Words.

    @_bounded
    def _text(self, node: Node, quoted: bool = False) -> str:
        """A word as the shell would read it, with SPLIT where it is split unless it is quoted."""
        raw = self._piece.raw(node)
        match node.type:
            case "raw_string" | "ansi_c_string":
                return raw[1:-1] if raw.startswith("'") else unescape(raw[2:-1])
            case "string" | "translated_string":
                return self._inner(node, 1, len(raw) - 1, True)
            case "array":
                return "".join(SPLIT + self._text(one) for one in node.named_children)
            case "simple_expansion" | "expansion":
                found = self._expansion(node, raw, quoted)
            case "command_substitution":
                found = self._block(node, None).rstrip("\n")
            case "process_substitution":
                found = f"/dev/fd/{len(self._files) + 10}"
                self._files[found] = self._block(node, None)
            case _:
                return self._inner(node, 0, len(raw), quoted)
        if not self._affordable(len(found)) or quoted:
            return found
        return re.sub(f"[{re.escape(self._variables['IFS'])}{SPLIT}]+", SPLIT, found) or SPLIT

    def _inner(self, node: Node, start: int, end: int, quoted: bool) -> str:
        """The text between two offsets of a node, its backslashes gone and its expansions replaced."""
        raw, first = self._piece.raw(node), node.start_byte
        slashes = _SOFT if quoted else _HARD
        parts = []
        for child in node.named_children:
            if child.type not in {"string_content", "heredoc_content"} and child.start_byte >= first + start:
                parts += [_bare(raw[start : child.start_byte - first], slashes), self._text(child, quoted)]
                start = child.end_byte - first
        return "".join([*parts, _bare(raw[start:end], slashes)])

    def _expansion(self, node: Node, raw: str, quoted: bool) -> str:
        """A parameter's value, or the word that the expansion has for one without a value."""
        match = _EXPANSION.fullmatch(raw)
        if not match:
            self._inner(node, 0, len(raw), quoted)
            return UNKNOWN
        name = match[1]
        value = self._parameters.get(name, self._variables.get(name, UNKNOWN))
        if match[3] and UNKNOWN not in value:
            return value[int(match[3][:9]) :][: int((match[4] or "9")[:9])]
        other = self._inner(node, match.start(2), len(raw) - 1, quoted) if match[2] else ""
        return value.strip(UNKNOWN) or other or value


def _fields(text: str) -> list[str]:
    """The words that one word becomes."""
    return [field for field in text.split(SPLIT) if field] if SPLIT in text else [text]


def _bare(text: str, slashes: re.Pattern[str]) -> str:
    return slashes.sub(lambda found: found[1].strip("\n"), text) if "\\" in text else text
