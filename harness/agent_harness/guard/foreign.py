"""Commands that Python code hands to a shell, where they stand in it as literals."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from agent_harness.guard.nouns import UNKNOWN

LONGEST = 256 << 10
_SHELL_CALLS = frozenset({"system", "popen", "getoutput", "getstatusoutput"})
_MODULES = {
    "os": re.compile(r"system|popen|(exec|spawn|posix_spawn)[lvpe]*"),
    "subprocess": re.compile(r"run|call|check_call|check_output|Popen|getoutput|getstatusoutput"),
    "pty": re.compile(r"spawn"),
    "asyncio": re.compile(r"create_subprocess_(exec|shell)"),
}


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
        module, _, name = self._called(call.func).rpartition(".")
        known = _MODULES.get(module)
        if not (known and known.fullmatch(name)) and name not in _SHELL_CALLS:
            return None
        values = [self._value(one) for one in call.args] or [
            self._value(k.value) for k in call.keywords if k.arg == "args"
        ]
        if name.startswith(("exec", "spawn", "posix_spawn", "create_subprocess_exec")) and module != "pty":
            lists = [one for one in values if isinstance(one, list)]
            words = [one for one in values if isinstance(one, str)]
            return lists[0] if lists else words[0 if "_exec" in name else 1 :] or None
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
        if depth > 8:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else UNKNOWN
        if isinstance(node, ast.List | ast.Tuple):
            return [self._text(one) for one in node.elts]
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._value(self._names[node.id], depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._value(node.left, depth + 1), self._value(node.right, depth + 1)
            if isinstance(left, str) and isinstance(right, str):
                return left + right
            return left + right if isinstance(left, list) and isinstance(right, list) else UNKNOWN
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(one) for one in node.values)
        return self._method(node, depth)

    def _text(self, node: ast.expr) -> str:
        value = self._value(node)
        return value if isinstance(value, str) else UNKNOWN

    def _method(self, node: ast.expr, depth: int) -> str | list[str]:
        """`"git push".split()` and `shlex.split("git push")`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            text = self._value(node.args[0] if node.args else node.func.value, depth + 1)
            return text.split() if isinstance(text, str) else UNKNOWN
        return UNKNOWN
