"""Text as a model sees it, and where a quote of it stands."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

_ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]?[0-~]")
"""Colours and cursor moves. Of the sequences that carry text (titles, links) only the frame goes: whatever could be
swallowed with them, a reviewer would not see."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that every provider takes: no escape sequences, no control characters but newline and tab, no lone
    surrogates. CR LF and a lone CR become a newline."""
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: "\ufffd" if found[0] >= "\ud800" else "", text)


def is_clean(text: str) -> bool:
    """Whether `clean` would leave the text as it is."""
    return not _CONTROL.search(text)


def lines_of(data: bytes) -> list[str]:
    """The lines of a file as a model sees them, one for each that git counts: by LF alone, without their ends."""
    rows = data.split(b"\n")
    return [clean(row.removesuffix(b"\r").decode("utf-8", "replace")) for row in (rows if rows[-1] else rows[:-1])]


def locate(data: bytes, quote: str) -> tuple[int, int]:
    """The first and last line (from 1, as git counts) on which a quote stands. Raises LookupError, for the model,
    where it stands nowhere or more than once: then it is no location."""
    lines, wanted = lines_of(data), clean(quote).strip("\n")
    text = "\n".join(lines)
    at = text.find(wanted) if wanted.strip() else -1
    if at < 0:
        raise LookupError("does not stand in it; copy it exactly, without diff signs or line numbers")
    if text.find(wanted, at + 1) >= 0:
        raise LookupError("stands more than once in it; quote more of the text around it")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    return bisect_right(starts, at), bisect_right(starts, at + len(wanted) - 1)
