"""Anchors over 10,000 generated diffs that git itself wrote: a quote that survives stands exactly where code says."""

from __future__ import annotations

import random

from agent_harness.gates.hunks import Hunk, parse
from agent_harness.types.text import clean, locate
from agent_harness.workspace import HarnessRepository
from fakes.repos import git

FILES = 10_000
WORDS = (
    "return x",
    "x = 1",
    "}",
    "",
    "\t",
    "    pass",
    "def f(a):",
    "größe = 'ß'",
    "名前",
    "-- a",
    "++ b",
    "@@ -1 +1 @@",
)
MORE = ("diff --git a/x b/x", "\\ No newline at end of file", "a\rb", "\x0cpage", "\x1b[31mred\x1b[0m", "e\u0301")
NAMES = ("a b", "plain", "tab\tx", 'q"uote', "größe", "b/ b", "名", "back\\slash")
ENDS = (b"\n", b"\r\n")


def line(rng: random.Random) -> bytes:
    text = rng.choice(WORDS + MORE) if rng.random() < 0.6 else f"{rng.choice(WORDS)} {rng.randrange(10**6)}"
    raw = text.encode()
    return raw + b"\xff\xe9" if rng.random() < 0.02 else raw


def made(rng: random.Random) -> tuple[bytes, bytes]:
    """A file before and after: lines taken away, put in, repeated; ends changed; the last newline there or not."""
    end = rng.choice(ENDS)
    before = [line(rng) + (end if rng.random() < 0.95 else b"\n") for _ in range(rng.randrange(30))]
    after: list[bytes] = []
    for row in before:
        roll = rng.random()
        if roll < 0.12:
            continue
        after.append(line(rng) + end if roll < 0.2 else row)
        after += [line(rng) + end] * (rng.random() < 0.08)
    if rng.random() < 0.05:
        before = []
    elif rng.random() < 0.05:
        after = [row.replace(b"\r\n", b"\n") for row in before]
    cut = [rng.random() < 0.3, rng.random() < 0.3]
    one, two = (
        b"".join(rows).rstrip(b"\r\n") if c else b"".join(rows) for rows, c in zip((before, after), cut, strict=True)
    )
    return (one, two) if one != two else (one, two + b"more\n")


def name(rng: random.Random, number: int) -> str:
    return f"d{number % 97}/{rng.choice(NAMES)}-{number}.py"


def quoted(path: str) -> bytes:
    return b'"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").encode() + b'"'


def commit(files: dict[str, bytes], ref: str, modes: dict[str, str]) -> bytes:
    parts = [f"commit {ref}\ncommitter a <a@example.invalid> 1 +0000\ndata 1\nx\n".encode()]
    for path, data in files.items():
        parts.append(
            f"M {modes.get(path, '100644')} inline ".encode() + quoted(path) + f"\ndata {len(data)}\n".encode()
        )
        parts.append(data + b"\n")
    return b"".join(parts)


def rows(data: bytes) -> list[bytes]:
    split = data.split(b"\n")
    return split if split[-1] else split[:-1]


def applied(before: list[bytes], after: list[bytes], hunks: list[Hunk]) -> list[bytes]:
    """The head that base and the runs make: every line outside of a run must be the base's own."""
    out: list[bytes] = []
    at = 1
    for (first, last), (start, stop) in (run for hunk in hunks for run in hunk.runs):
        out += before[at - 1 : first - 1]
        assert len(out) == start - 1
        out += after[start - 1 : stop]
        at = last + 1
    return out + before[at - 1 :]


def checked(rng: random.Random, data: bytes, side: str, hunks: list[Hunk]) -> tuple[int, int]:
    """Quotes one to three whole lines, or a part of one, from a known place: exactly there, or refused with reason."""
    lines = [clean(row.removesuffix(b"\r").decode("utf-8", "replace")) for row in rows(data)]
    first = rng.randrange(len(lines))
    last = min(len(lines), first + rng.choice((1, 1, 2, 3))) - 1
    quote = "\n".join(lines[first : last + 1])
    if first == last and len(quote) > 6 and rng.random() < 0.3:
        quote = quote[2:]
    text = "\n".join(lines)
    bare = quote.strip("\n")
    times = sum(text.startswith(bare, at) for at in range(len(text))) if bare.strip() else 0
    try:
        found = locate(data, quote)
    except LookupError:
        assert times != 1, (quote, data)
        return 0, 1
    inner = list(range(first, last + 1))
    while bare != quote and inner and not lines[inner[0]]:
        inner.pop(0)
    while bare != quote and inner and not lines[inner[-1]]:
        inner.pop()
    assert times == 1 and found == (inner[0] + 1, inner[-1] + 1), (quote, data, found)
    changed = {
        n for hunk in hunks for run in hunk.runs for n in range(run[side == "head"][0], run[side == "head"][1] + 1)
    }
    if side == "head":
        changed |= {n for hunk in hunks for _, (a, b) in hunk.runs if b < a for n in (a - 1, a)}
    assert any(h.touches(side, *found) for h in hunks) == bool(changed & set(range(found[0], found[1] + 1)))
    return 1, 0


def test_every_surviving_anchor_is_exact_over_ten_thousand_diffs(tmp_path):
    rng = random.Random(5)
    base, head = {}, {}
    for number in range(FILES):
        path = name(rng, number)
        base[path], head[path] = made(rng)
        if rng.random() < 0.02:
            base.pop(path)
        elif rng.random() < 0.02:
            head.pop(path)
        elif rng.random() < 0.03:  # moved to another name, and changed there
            head[path + ".moved"] = head.pop(path) + b"moved\n"
    for number in range(200):  # what has no lines stands between what has
        base[f"d{number % 97}/bin-{number}"], head[f"d{number % 97}/bin-{number}"] = b"\0a", b"\0b"
        base[f"d{number % 97}/mode-{number}"] = head[f"d{number % 97}/mode-{number}"] = b"same\n"
    modes = {path: "100755" for path in head if "/mode-" in path}
    repository = HarnessRepository.open(tmp_path / "r.git")
    stream = commit(base, "refs/harness/a", {}) + commit(head, "refs/harness/b", modes).replace(
        b"data 1\nx\n", b"data 1\nx\ndeleteall\n", 1
    )
    git(repository.path, "fast-import", "--quiet", stdin=stream)
    found: dict[str, list[Hunk]] = {}
    for hunk in parse(repository.diff("refs/harness/a", "refs/harness/b")):
        found.setdefault(hunk.path, []).append(hunk)
    assert len(found) > FILES
    kept = refused = 0
    for path in base.keys() | head.keys():
        before, after = base.get(path, b""), head.get(path, b"")
        hunks = found["".join(c if c.isprintable() else repr(c)[1:-1] for c in path)]
        if b"\0" in before or "/mode-" in path or not before + after:
            assert [hunk.runs for hunk in hunks] == [()]
            continue
        assert applied(rows(before), rows(after), hunks) == rows(after), path
        for data, side in ((after, "head"), (before, "base")):
            if rows(data):
                one, other = checked(rng, data, side, hunks)
                kept, refused = kept + one, refused + other
    assert kept > FILES // 2 and refused > 100, (kept, refused)
