"""What a change consists of, read off git's own diff: its hunks, and whether a place lies inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_harness.types import Change
from agent_harness.types.text import clean
from agent_harness.workspace.entries import shown

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))

_CONTENT = re.compile(r"(oid sha256:[0-9a-f]{64}|/annex/objects/\S+)\s*$")
_POINTER = re.compile(rf"version https?://\S+$|ext-\d|size \d+$|{_CONTENT.pattern}")
"""Of Git LFS and git-annex: the line that names what is elsewhere, and any line of such a file."""

Span = tuple[int, int]
"""First and last line, from 1. Where there is no line, the last is one less than the first."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk of one file, or all that a diff says of a file without lines (binary, mode, empty): `runs` is empty
    then. A run is what was replaced by what: the lines of base, and those of head."""

    path: str
    head: str
    text: str
    base: Span
    new: Span
    runs: tuple[tuple[Span, Span], ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Where it is, for people: `path:first-last`."""
        return f"{self.path}:{self.lines}" if self.runs else self.path

    @property
    def lines(self) -> str:
        """Its lines: those of head, or of base where head has none."""
        if not self.runs:
            return "whole"
        (first, last), side = (self.new, "") if self.new[1] >= self.new[0] else (self.base, " of base")
        return f"{first}-{last}{side}"

    @property
    def dark(self) -> bool:
        """Whether the diff shows nothing of what head has here: git takes it for binary, and names it only."""
        said = self.head.rstrip("\n").split("\n")  # a path may hold anything but a raw line end
        return said[-1].startswith("Binary files ") and not said[1].startswith("deleted file mode ")

    @property
    def elsewhere(self) -> bool:
        """Whether what head has here is in no tree: a submodule, of which there is only the name of a commit, or a
        file of which there is only a pointer to where large files are kept."""
        module = re.search(r"^(new file mode|index \S+) 160000$", self.head, re.MULTILINE)
        lines = list(filter(str.strip, self.added))
        return module is not None or (all(map(_POINTER.match, lines)) and any(map(_CONTENT.match, lines)))

    def touches(self, side: str, first: int, last: int) -> bool:
        """Whether lines of a side lie in what it changes. Of lines that are gone, head has the two around the gap."""
        for base, new in self.runs:
            start, end = base if side == "base" else new
            if end < start and side == "head":
                start, end = end, start
            if start <= end and first <= end and last >= start:
                return True
        return not self.runs


def parse(diff: bytes) -> tuple[Hunk, ...]:
    """The hunks of a diff that git wrote without renames, in its order."""
    rows, found, at = diff.split(b"\n"), list[Hunk](), 0
    while at < len(rows):
        if not rows[at].startswith(b"diff --git "):
            at += 1
            continue
        path, start = shown(_path(rows[at][11:])), at
        at += 1
        while at < len(rows) and not rows[at].startswith((b"@@ ", b"diff --git ")):
            at += 1
        head = _text(rows[start:at])
        if at == len(rows) or rows[at].startswith(b"diff --git "):
            found.append(Hunk(path, head, "", (1, 0), (1, 0)))
        while at < len(rows) and (match := _HUNK.match(rows[at])):
            numbers = [1 if one is None else int(one) for one in match.groups()]
            end = _end(rows, at + 1, numbers[1], numbers[3])
            found.append(_hunk(path, head, rows[at:end], numbers))
            at = end
    return tuple(found)


def _end(rows: Sequence[bytes], at: int, old: int, new: int) -> int:
    """The row after a hunk, by the counts its head gives: a line of a file may look like anything."""
    while (old > 0 or new > 0) and at < len(rows):
        old -= rows[at][:1] != b"+"
        new -= rows[at][:1] != b"-"
        if rows[at][:1] == b"\\":  # no newline at the end of the file: a line of neither
            old, new = old + 1, new + 1
        at += 1
    return at + (at < len(rows) and rows[at][:1] == b"\\")


def _hunk(path: str, head: str, rows: Sequence[bytes], numbers: Sequence[int]) -> Hunk:
    # git names the line before an empty side; here a span starts where its lines would stand
    old, new = numbers[0] + (numbers[1] == 0), numbers[2] + (numbers[3] == 0)
    base, now = (old, old + numbers[1] - 1), (new, new + numbers[3] - 1)
    runs, removed, added = list[tuple[Span, Span]](), list[str](), list[str]()
    start = (old, new)
    for row in (*rows[1:], b" "):
        if row[:1] == b"-":
            removed.append(_line(row))
            old += 1
        elif row[:1] == b"+":
            added.append(_line(row))
            new += 1
        elif row[:1] != b"\\":
            if (old, new) != start:
                runs.append(((start[0], old - 1), (start[1], new - 1)))
            old, new = old + 1, new + 1
            start = (old, new)
    text = _text([rows[0].replace(b"\r", b" "), *map(_row, rows[1:])])
    return Hunk(path, head, text, base, now, tuple(runs), tuple(removed), tuple(added))


def _row(row: bytes) -> bytes:
    """A row of which no part looks like another: a model is shown a lone CR as a line end, so what follows it gets the
    row's sign too."""
    return row if b"\r" not in row else row.removesuffix(b"\r").replace(b"\r", b"\n" + row[:1])


def _line(row: bytes) -> str:
    return clean(row[1:].removesuffix(b"\r").decode("utf-8", "replace"))


def _text(rows: Sequence[bytes]) -> str:
    return b"\n".join(rows).decode("utf-8", "replace") + "\n"


def _path(names: bytes) -> bytes:
    """The path of `a/PATH b/PATH`, either quoted as C does."""
    name = names[: len(names) // 2]
    if name[:1] != b'"':
        return name[2:]

    def plain(found: re.Match[bytes]) -> bytes:
        one = found[1]
        return bytes([int(one, 8) if len(one) == 3 else _LETTERS.get(one[0], one[0])])

    return _ESCAPED.sub(plain, name[3:-1])


def choose(hunks: Sequence[Hunk], limit: int, spared: frozenset[int] = frozenset()) -> frozenset[int]:
    """Which hunks are shown within so many characters. Small files first, whole; what is left is shared evenly, so
    that no large file crowds out the others. A hunk is shown whole or not at all, one that is `spared` not at all."""
    files: dict[str, list[int]] = {}
    for number, hunk in enumerate(hunks):
        if number not in spared:
            files.setdefault(hunk.path, []).append(number)

    def size(numbers: Sequence[int]) -> int:
        return sum(len(hunks[n].text) + (len(hunks[n].head) if n == numbers[0] else 0) for n in numbers)

    chosen, left = set[int](), limit
    order = sorted(files.values(), key=size)
    for place, numbers in enumerate(order):
        share, used = left // (len(order) - place), 0
        for count in range(1, len(numbers) + 1):
            if (total := size(numbers[:count])) > share:
                break
            chosen.add(numbers[count - 1])
            used = total
        left -= used
    return frozenset(chosen)


def manifest(
    hunks: Sequence[Hunk], changes: Sequence[Change], chosen: frozenset[int], spared: frozenset[int] = frozenset()
) -> str:
    """Every changed file with every hunk of it, and which of them are not shown."""
    rows: dict[str, list[str]] = {}
    for number, hunk in enumerate(hunks):
        note = "" if number in chosen else " (need not be read)" if number in spared else " (NOT SHOWN)"
        rows.setdefault(hunk.path, []).append(hunk.lines + note)
    status = {change.shown: change.status for change in changes}
    return "\n".join(f"{status.get(path, '?')} {path}: {', '.join(lines)}" for path, lines in rows.items())


def told(hunks: Sequence[Hunk], chosen: frozenset[int]) -> Iterator[str]:
    """The text of the shown hunks, each file's head before its first."""
    last = ""
    for number, hunk in enumerate(hunks):
        if number in chosen:
            yield (hunk.head if hunk.head != last else "") + hunk.text
            last = hunk.head
