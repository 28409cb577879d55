"""Small edits of Python source with a known effect: faults to be found, and renames that change nothing.

Every edit replaces one stretch of the file and leaves all else byte for byte. The places are found on the syntax
tree, so a fault never stands in a comment or a text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_OPPOSITE = {ast.Lt: (b"<", b"<="), ast.LtE: (b"<=", b"<"), ast.Gt: (b">", b">="), ast.GtE: (b">=", b">")}
_OTHER = {ast.And: (b"and", b"or"), ast.Or: (b"or", b"and"), ast.Add: (b"+", b"-"), ast.Sub: (b"-", b"+")}
_COMMUTE = {"max", "min", "zip", "print", "cast", "getattr", "setattr", "isinstance", "issubclass"}
_LEAST_LINES = 4
_SETTLED = ("TYPE_CHECKING", "version_info", "platform", "__name__", "DEBUG")

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Found = tuple[tuple[int, int], bytes, str, str]


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` of a file become `text`. `severity` is empty for an edit that changes nothing."""

    start: int
    end: int
    text: bytes
    operator: str
    severity: str
    function: str
    says: str
    """The true statement that a story can make of it."""


class Source:
    """A file, its tree, and byte offsets of its nodes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._tree = ast.parse(data)
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The bytes of a node, whose lines and columns the tree counts in bytes, too."""
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.stmt) -> bytes:
        """The source of a node."""
        start, end = self.span(node)
        return self.data[start:end]

    def between(self, left: ast.expr, right: ast.expr, word: bytes) -> tuple[int, int]:
        """Where an operator stands between two operands; an empty span where that is not plain."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.data[start:end]
        plain = gap.count(word) == 1 and b"#" not in gap and b"\n" not in gap
        return (start + gap.index(word), start + gap.index(word) + len(word)) if plain else (0, 0)

    def functions(self) -> Iterator[Function]:
        """Functions long enough to hide something in."""
        for node in ast.walk(self._tree):
            if not isinstance(node, Function) or node.name.startswith("__r"):
                continue
            if (node.end_lineno or 0) - node.body[0].lineno >= _LEAST_LINES:
                yield node


def faults(source: Source) -> list[Edit]:
    """Every fault that can be put into a file, in order of place."""
    found: list[Edit] = []
    for function in source.functions():
        for node in _own(function):
            found += _faults_of(source, node, function.name)
    return sorted({(one.start, one.operator): one for one in found}.values(), key=lambda one: one.start)


def renames(source: Source) -> list[tuple[Edit, ...]]:
    """Local variables, each with the edits that give it another name everywhere."""
    found = []
    for function in source.functions():
        inside = list(ast.walk(function))
        if any(isinstance(n, ast.JoinedStr | ast.Lambda | ast.Global | ast.Nonlocal | ast.ClassDef) for n in inside):
            continue  # positions within an f-string are not to be relied on
        if sum(isinstance(n, Function) for n in inside) > 1 or any(_named(n, "locals") for n in inside):
            continue
        names = [n for n in inside if isinstance(n, ast.Name)]
        taken = {n.id for n in names} | {n.arg for n in inside if isinstance(n, ast.arg)}
        assigned = {n.id for n in names if isinstance(n.ctx, ast.Store)} - {
            a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)
        }
        other = {n.name for n in inside if isinstance(n, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and n.name}
        for name in sorted(assigned - other):
            new = f"{name}_value"
            places = [n for n in names if n.id == name]
            if new in taken or len(name) < 2 or len(places) < 2 or name.startswith("_"):
                continue
            says = f"Renames the local variable {name} of {function.name}() to {new}."
            found.append(tuple(Edit(*source.span(n), new.encode(), "rename", "", function.name, says) for n in places))
    return found


def apply(data: bytes, edits: list[Edit]) -> bytes:
    """All edits at once; none may overlap. Raises ValueError."""
    out, at = [], 0
    for edit in sorted(edits, key=lambda one: one.start):
        if edit.start < at:
            raise ValueError("edits overlap")
        out += [data[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*out, data[at:]])


def _own(function: Function) -> Iterator[ast.AST]:
    """A function's nodes, without those of functions in it, nor what is settled before it runs."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, Function | ast.ClassDef | ast.Lambda | ast.JoinedStr | ast.Assert):
            continue
        if isinstance(node, ast.If) and any(word in ast.unparse(node.test) for word in _SETTLED):
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def _faults_of(source: Source, node: ast.AST, function: str) -> Iterator[Edit]:
    found = _operator(source, node) if isinstance(node, ast.expr) else _statement(source, node)
    if found is not None:
        (start, end), text, operator, severity = found
        if start < end:
            yield Edit(start, end, text, operator, severity, function, f"Tidies up {function}().")


def _operator(source: Source, node: ast.expr) -> _Found | None:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPPOSITE:
            was, now = _OPPOSITE[type(op)]
            return source.between(left, right, was), now, "boundary", "P2"
        case ast.BoolOp(op=op, values=[left, right]):
            was, now = _OTHER[type(op)]
            return source.between(left, right, was), now, "and-or", "P1"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=1) as right):
            was, now = _OTHER[type(op)]
            return source.between(left, right, was), now, "off-by-one", "P1"
        case ast.Call(func=func, args=[ast.Name() as first, ast.Name() as second], keywords=[]):
            if ast.unparse(func).rsplit(".", 1)[-1] not in _COMMUTE and first.id != second.id:
                (start, end), (other, last) = source.span(first), source.span(second)
                swapped = source.text(second) + source.data[end:other] + source.text(first)
                return (start, last), swapped, "swapped-arguments", "P1"
    return None


def _statement(source: Source, node: ast.AST) -> _Found | None:
    match node:
        case ast.If(test=test, body=[ast.Return() | ast.Raise() | ast.Continue()], orelse=[]):
            return source.span(test), b"not (" + source.text(test) + b")", "negated-guard", "P1"
        case ast.Return(value=ast.Constant(value=bool() as value)):
            return source.span(node), f"return {not value}".encode(), "wrong-constant", "P1"
        case ast.ExceptHandler(body=[ast.Raise() as last]) if source.text(last) == b"raise":
            return source.span(last), b"pass", "swallowed-error", "P0"
        case _:
            return None


def _named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
