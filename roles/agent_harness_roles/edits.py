"""Edits of a file as bytes: exact, all or none, and never at a place that is not a single place."""

from collections.abc import Mapping, Sequence

_SHOWN = 5
_QUOTED = 120


class EditRefusedError(ValueError):
    """An edit that cannot be placed. The text is for the model."""


def apply(data: bytes, edits: Sequence[Mapping[str, str]]) -> bytes:
    """The bytes after all edits, one after the other. Raises EditRefusedError when any of them cannot be placed.

    Bytes outside the replaced text stay as they are, valid UTF-8 or not. A file whose lines all end in CR LF is
    edited in CR LF (the model sees, and writes, plain newlines)."""
    crlf = data.count(b"\r\n")
    uniform = crlf > 0 and crlf == data.count(b"\n")
    after = data
    for number, edit in enumerate(edits, 1):
        after = _one(after, edit, f"edit {number} of {len(edits)}", uniform=uniform)
    if after == data:
        raise EditRefusedError("the edits change nothing")
    return after


def _one(data: bytes, edit: Mapping[str, str], name: str, *, uniform: bool) -> bytes:
    old, new = edit["old"].encode(), edit["new"].encode()
    if old == new:
        raise EditRefusedError(f"{name}: old and new are the same text")
    if uniform or old not in data:
        old, new = _crlf(old), _crlf(new)
    places = _places(data, old)
    if not places:
        raise EditRefusedError(f"{name}: text not found{_hint(data, edit['old'])}")
    if len(places) > 1:
        lines = ", ".join(str(data.count(b"\n", 0, at) + 1) for at in places[:_SHOWN])
        more = " and more" if len(places) > _SHOWN else ""
        raise EditRefusedError(
            f"{name}: text found more than once (lines {lines}{more}); include more context in `old`"
        )
    at = places[0]
    return data[:at] + new + data[at + len(old) :]


def _places(data: bytes, text: bytes) -> list[int]:
    """Where text stands, overlapping places too; stops early, as more than a few say nothing more."""
    found: list[int] = []
    at = data.find(text)
    while at >= 0 and len(found) <= _SHOWN:
        found.append(at)
        at = data.find(text, at + 1)
    return found


def _crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _hint(data: bytes, old: str) -> str:
    """Where the first line of the wanted text stands with other white space, if it does."""
    wanted = next((line.split() for line in old.splitlines() if line.strip()), [])
    for number, raw in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if wanted and raw.split() == wanted:
            return f"; line {number} is close: {raw[:_QUOTED]!r}. Copy the text exactly, white space included"
    return "; look at the file again and copy the text exactly, without line numbers"
