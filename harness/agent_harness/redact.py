"""Secrets out before anything is written, shown or sent.

Only known values are looked for, in the forms in which programs print them: a pattern that guesses what a secret
looks like either misses some or destroys records. Give the redactor whole texts and truncate afterwards: half a
secret is not recognised.
"""

import base64
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""Values with fewer characters are not looked for: they would hit ordinary words."""

_SHORTEST_LINE = 16
_TO_URL = str.maketrans("+/", "-_")


class Redactor:
    """Replaces each known secret in a text by `[redacted:NAME]`; `secrets` maps names to values."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        forms: dict[str, str] = {}
        for name, value in secrets.items():
            for part in _parts(value):
                for form in _forms(part):
                    if len(form) >= SHORTEST:
                        forms.setdefault(form, name)
        self._names = forms
        # Longest first, so that a secret that begins with another is replaced as a whole.
        self._pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        """The text without secrets; everything around them stays as it was."""
        # Searching each literal is far faster than the pattern, and nearly every text holds none.
        if not any(form in text for form in self._names):
            return text
        return self._pattern.sub(lambda match: f"[redacted:{self._names[match[0]]}]", text)

    def __repr__(self) -> str:
        return f"Redactor({', '.join(sorted(set(self._names.values())))})"

    def exception(self, error: BaseException) -> str:
        """The traceback with all its causes, as a text without secrets."""
        return self("".join(traceback.format_exception(error)))


def scrub(value: Any, redact: Callable[[str], str]) -> Any:
    """Plain data with `redact` applied to every string and key, and text that UTF-8 cannot hold replaced."""
    if isinstance(value, str):
        return redact(str(value)).encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {scrub(str(key), redact): scrub(inner, redact) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(inner, redact) for inner in value]
    return value


def _parts(value: str) -> Iterator[str]:
    """The value, without the white space around it that a file or a shell adds, and each of its longer lines: a
    key of several lines is printed indented, quoted or cut at line ends."""
    value = value.strip()
    if len(value) >= SHORTEST:
        yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (part for line in lines if len(part := line.strip()) >= _SHORTEST_LINE and part[:5] != "-----")


def _forms(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogateescape")
    yield value
    yield from _escaped(value)
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield url
        yield re.sub("%..", lambda match: match[0].lower(), url)
    for text in _base64(raw):
        yield text
        yield text.translate(_TO_URL)
    yield raw.hex()
    yield raw.hex().upper()


def _escaped(value: str) -> Iterator[str]:
    """As JSON, JSON inside JSON, and Python write it between the quotes."""
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield repr(value)[1:-1]


def _base64(raw: bytes) -> Iterator[str]:
    """The value alone, and the characters it always has inside a longer encoded text (`user:KEY`), of which the
    bytes before shift it by 0, 1 or 2."""
    whole = base64.b64encode(raw).decode()
    yield whole
    yield whole.rstrip("=")
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + raw).decode()
        first = (0, 2, 3)[shift]
        yield text[first : (len(raw) + shift) * 8 // 6]
