"""What programs print and what they start, as far as it stands in their words, in a script or in Python code."""

from __future__ import annotations

import ast
import base64
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import dropwhile, takewhile
from typing import NamedTuple

from agent_harness.guard.nouns import SPLIT, UNKNOWN
from agent_harness.guard.rules import Words, after

Read = Callable[[str], str]
"""A file's text by its path, `-` is what the program is fed; empty where that is not there."""


class Script(NamedTuple):
    """Text that a shell runs, with its parameters; None keeps those of the shell that runs it."""

    text: str
    parameters: Words | None = None


_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "source", "."})
_PYTHON = re.compile(r"python[\d.]*|pypy3?")
_WRAPPERS = {
    **dict.fromkeys(("nohup", "setsid", "command", "builtin", "eval", "trap", "busybox", "npx"), "0"),
    **dict.fromkeys(("git bisect run", "git submodule foreach"), "0"),
    **dict.fromkeys(("sudo", "doas", "env"), "0 -u -g -h -p -C -r -t -T -U -D -R --user --group --unset --chdir"),
    **dict.fromkeys(("nice", "ionice", "exec", "watch"), "0 -n -c -a --adjustment --class --classdata --interval"),
    **dict.fromkeys(("time", "stdbuf"), "0 -f -i -o -e --format --input --output --error"),
    **dict.fromkeys(("xargs", "parallel"), "0 -I -n -N -P -L -d -a -s -E -j --arg-file --delimiter --max-args"),
    **dict.fromkeys(("uv run", "poetry run", "npm exec", "bundle exec", "conda run"), "0 -n -p --with --package"),
    "timeout": "1 -s -k --signal --kill-after",
    "flock": "1 -w -E --timeout",
    "ssh": "1 -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w",
}
"""How many words stand before the program that is started, and the options that take a value."""
_JOINED = frozenset({"eval", "ssh", "watch"})
"""They hand their words to a shell as one text."""


def starts(words: Words, read: Read) -> Iterator[Words | Script]:
    """The programs and scripts that a program with these words (the first one its plain name) starts."""
    name = words[0]
    if name in _SHELLS or _PYTHON.fullmatch(name):
        yield from _interpreted(words, read)
    elif name == "find":
        for at, word in enumerate(words):
            if word in {"-exec", "-execdir", "-ok", "-okdir"}:
                yield list(takewhile(lambda one: one not in {";", "+"}, words[at + 1 :]))
    elif "/" in name:
        yield from _code(read(name), words[1:])
    elif words[:2] not in (["command", "-v"], ["command", "-V"]):
        yield from _wrapped(words, read)


def _wrapped(words: Words, read: Read) -> Iterator[Words | Script]:
    key = next((key for n in (3, 2, 1) if (key := " ".join(words[:n])) in _WRAPPERS), "")
    if not key:
        return
    skip, *valued = _WRAPPERS[key].split()
    inner = after(words[key.count(" ") :], valued)[int(skip) :]
    inner = list(dropwhile(re.compile(r"\w+=").match, inner)) if key in {"env", "sudo", "doas"} else inner
    inner = inner[:1] if key == "trap" else inner
    if key in {"xargs", "parallel"}:
        fed = read("-")[:4096].replace(UNKNOWN, " ").strip()
        holder = next((word[2:] or "{}" for word in words if word.startswith("-I")), "{}")
        inner = [word.replace(holder, fed) for word in [*inner, *fed.split()] if word != ":::"]
    if key in _JOINED or (len(inner) == 1 and " " in inner[0]):
        yield Script(" ".join(inner))
    else:
        yield inner


def _interpreted(words: Words, read: Read) -> Iterator[Words | Script]:
    python = bool(_PYTHON.fullmatch(words[0]))
    bundled = r"-\w*[XW]" if python else r"-\w*[oO]|--rcfile|--init-file"
    rest = after(words, [word for word in words if re.fullmatch(bundled, word)])
    flags = "".join(word for word in words[1 : len(words) - len(rest)] if not word.startswith("--"))
    if python and "m" in flags:
        yield rest
    elif "c" in flags:
        yield from _code("".join(rest[:1]), rest[2:], python=python)
    elif not rest or ("s" in flags and not python):
        yield from _code(read("-"), rest, python=python)
    elif "n" not in flags:
        yield from _code(read(rest[0]), rest[1:], python=python)


def _code(text: str, parameters: Words, *, python: bool = False) -> Iterator[Words | Script]:
    first = text.split("\n", 1)[0] if text.startswith("#!") else "sh"
    if python or "python" in first:
        yield from _python(text)
    elif text and re.search(r"sh\b", first):
        yield Script(text, parameters)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-3]?[0-7]{1,2}|[abfnrtv\\'\"])")


def unescape(text: str) -> str:
    """A text with C-like escapes (`$'..'`, `printf`, `echo -e`) as it comes out."""
    return _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), text)


def printed(words: Words, read: Read) -> str:
    """What a program prints; UNKNOWN where its words do not say."""
    name, rest = words[0], words[1:]
    if name == "echo":
        return unescape(" ".join(dropwhile(re.compile("-[neE]+$").match, rest))) + "\n"
    if name == "printf" and rest:
        values = iter(rest[1:])
        return re.sub("%[sbdi]", lambda _: next(values, ""), unescape(rest[0])).replace("%%", "%")
    if name in {"cat", "tee", "base64"}:
        paths = [word for word in rest if not word.startswith("-") and name != "tee"]
        text = "".join(read(path) or UNKNOWN for path in paths or ["-"])
        if name != "base64":
            return text
        with suppress(ValueError):
            return base64.b64decode(text).decode("utf-8", "replace") or UNKNOWN
    return UNKNOWN


_LONGEST_CODE, _LONGEST_VALUE, _DEEPEST_VALUE = 256 << 10, 4096, 16
_STARTS = re.compile(
    r"subprocess\.(run|call)|(os|pty)\.(posix_)?(spawn|exec)\w*|.*\.(system|[pP]open|check_call|check_output|get\w*output)"
)


def _python(code: str) -> Iterator[Words | Script]:
    """What a Python program starts, where that stands in it as literals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code[:_LONGEST_CODE].replace(UNKNOWN, "_"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names |= {one.asname or one.name: origin + one.name for one in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _value(node.value, names)
        elif isinstance(node, ast.Call) and _STARTS.fullmatch(name := _value(node.func, names)):
            values = [_value(one, names) for one in [*node.args, *(word.value for word in node.keywords)]] or [""]
            listed = next((value for value in values if value.startswith(SPLIT)), None)
            if listed is not None:
                yield listed.split(SPLIT)[1:]
            else:
                yield values[1:] if re.search("exec|spawn", name) else Script(values[0])


def _value(node: ast.expr, names: dict[str, str], depth: int = 0) -> str:
    """A constant, or an imported name with its dots; SPLIT stands before every element of a list."""

    def inner(one: ast.expr) -> str:
        return _value(one, names, depth + 1) if depth < _DEEPEST_VALUE else UNKNOWN

    value = UNKNOWN
    match node:
        case ast.Constant(value=str(text)):
            value = text
        case ast.Name(id=name):
            value = names.get(name, UNKNOWN)
        case ast.List(elts=listed) | ast.Tuple(elts=listed):
            value = "".join(SPLIT + inner(one) for one in listed)
        case ast.JoinedStr(values=parts):
            value = "".join(map(inner, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            value = inner(left) + inner(right)
        case ast.Attribute(value=owner, attr=name):
            value = f"{inner(owner)}.{name}"
        case ast.Call(func=ast.Attribute(value=owner, attr="split")):
            value = SPLIT + SPLIT.join(inner(owner).split())
    return value if len(value) <= _LONGEST_VALUE else UNKNOWN
