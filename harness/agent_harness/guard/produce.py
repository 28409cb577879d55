"""What plain programs print: enough to read a script that is handed on as text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from agent_harness.guard.nouns import UNKNOWN

File = Callable[[str], str]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_ANSI = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,6})|([0-7]{1,3})|(.))", re.DOTALL)


def unescape(text: str) -> str:
    """A text with C-like escapes (`$'..'`, `printf`, `echo -e`) as it comes out."""

    def one(found: re.Match[str]) -> str:
        code = next((int(found[n], 16) for n in (1, 2, 3) if found[n]), int(found[4], 8) if found[4] else 0)
        return chr(code) if code and code < 0x110000 else _ESCAPES.get(found[5] or "", found[5] or "")

    return _ANSI.sub(one, text)


def produced(argv: list[str], stdin: str | None, file: File) -> str:
    """What a command prints; UNKNOWN where its words do not say."""
    make = PRODUCERS.get(argv[0].rsplit("/", 1)[-1]) if argv else None
    return make(argv[1:], UNKNOWN if stdin is None else stdin, file) if make else UNKNOWN


def _echo(words: list[str], _stdin: str, _file: File) -> str:
    options = ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        options, words = options + words[0], words[1:]
    text = " ".join(words)
    return (unescape(text) if "e" in options else text) + ("" if "n" in options else "\n")


def _printf(words: list[str], _stdin: str, _file: File) -> str:
    words = words[1:] if words[:1] == ["--"] else words
    if not words or words[0].startswith("-v"):
        return ""
    form, rest = unescape(words[0]), words[1:]
    takes = len(re.findall(r"%[sbqdi]", form.replace("%%", "")))
    rows = -(-len(rest) // takes) if takes else 1
    values = iter(rest)

    def once() -> str:
        return re.sub(r"%([sbqdi%])", lambda found: "%" if found[1] == "%" else next(values, ""), form)

    return "".join(once() for _ in range(max(rows, 1)))


def _cat(words: list[str], stdin: str, file: File) -> str:
    paths = [word for word in words if not word.startswith("-") or word == "-"]
    return "".join(stdin if path in {"-", "/dev/stdin"} else file(path) for path in paths) if paths else stdin


def _base64(words: list[str], stdin: str, file: File) -> str:
    text = _cat([word for word in words if word not in {"-w", "0"}], stdin, file)
    if not re.search(r"(^| )(-[a-zA-Z]*[dD]|--decode)", " ".join(words)) or UNKNOWN in text:
        return UNKNOWN
    try:
        return base64.b64decode(re.sub(r"\s", "", text)).decode("utf-8", "replace").replace("\0", "")
    except (ValueError, binascii.Error):
        return UNKNOWN


PRODUCERS: dict[str, Callable[[list[str], str, File], str]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": lambda _words, stdin, _file: stdin,
    "base64": _base64,
}
