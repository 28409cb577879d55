"""Commands that Python code hands to a shell, where they stand in it as literals."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from agent_harness.guard.nouns import UNKNOWN

LONGEST = 256 << 10
_MOST_LOOKS = 5000
_STARTS = re.compile(
    r"(os|pty)\.((posix_)?spawn|exec)[lvpe]*|subprocess\.(run|call|check_call|check_output|Popen)"
    r"|asyncio\.create_subprocess_(exec|shell)|.*\.(system|popen|getoutput|getstatusoutput)"
)


def python_commands(code: str) -> Iterator[list[str] | str]:
    """Scripts (text) and commands (words) that a Python program starts."""
    if len(code) > LONGEST:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code.replace(UNKNOWN, "_"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    reader = _Python()
    for node in ast.walk(tree):
        reader.learn(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (found := reader.started(node)):
            yield found


class _Python:
    """Constants and imported names of one program."""

    def __init__(self) -> None:
        self._names: dict[str, ast.expr] = {}
        self._imported: dict[str, str] = {}
        self._looks = 0

    def learn(self, node: ast.AST) -> None:
        """Remember what a name stands for."""
        if isinstance(node, ast.Import):
            self._imported.update({one.asname or one.name: one.name for one in node.names})
        elif isinstance(node, ast.ImportFrom):
            self._imported.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._names[node.targets[0].id] = node.value

    def started(self, call: ast.Call) -> list[str] | str | None:
        """What a call starts, None where it starts nothing that is plain."""
        name = self._called(call.func)
        if not _STARTS.fullmatch(name):
            return None
        values = [
            self._value(one) for one in [*call.args, *(word.value for word in call.keywords if word.arg == "args")]
        ]
        if "exec" in name or "spawn" in name:
            lists = [one for one in values if isinstance(one, list)]
            words = [one for one in values if isinstance(one, str)]
            return lists[0] if lists else words[0 if "_exec" in name else 1 :]
        return values[0] if values else None

    def _called(self, function: ast.expr) -> str:
        if isinstance(function, ast.Attribute):
            owner = function.value
            if isinstance(owner, ast.Name):
                return f"{self._imported.get(owner.id, owner.id)}.{function.attr}"
            if isinstance(owner, ast.Call) and owner.args and isinstance(owner.args[0], ast.Constant):
                return f"{owner.args[0].value!s}.{function.attr}"  # __import__("os").system
            return f"?.{function.attr}"
        return self._imported.get(function.id, "") if isinstance(function, ast.Name) else ""

    def _value(self, node: ast.expr, depth: int = 0) -> str | list[str]:
        """A constant text or list of texts; UNKNOWN stands for the rest."""
        self._looks += 1
        if depth > 8 or self._looks > _MOST_LOOKS:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else UNKNOWN
        if isinstance(node, ast.List | ast.Tuple):
            return [self._text(one, depth) for one in node.elts]
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._value(self._names[node.id], depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._value(node.left, depth + 1), self._value(node.right, depth + 1)
            alike = isinstance(left, list) is isinstance(right, list)
            return left + right if alike else UNKNOWN  # type: ignore[operator]
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(one, depth) for one in node.values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            return self._text(node.args[0] if node.args else node.func.value, depth).split()  # shlex.split("x") too
        return UNKNOWN

    def _text(self, node: ast.expr, depth: int) -> str:
        value = self._value(node, depth + 1)
        return value if isinstance(value, str) and len(value) <= LONGEST else UNKNOWN
