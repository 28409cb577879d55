"""What a test command says it ran: counts and names, read from its report or its printed summary.

A check is trusted only as far as it can be counted: exit code 0 alone never proves that a test ran. Reports
are written by code under judgement, so everything here only ever makes a pass harder, never easier.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.parsers import expat

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

DEEPEST = 50
"""Elements of a report inside each other: runners have five."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests a command collected and how they ended. Names are given where the runner tells them."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failing: frozenset[str] = field(default_factory=frozenset)
    skipping: frozenset[str] = field(default_factory=frozenset)
    names: frozenset[str] | None = None
    proven: bool = False
    """A report and a printed summary say the same number."""

    @property
    def collected(self) -> int:
        """Every test that was found, whatever became of it."""
        return self.passed + self.failed + self.errors + self.skipped

    @property
    def ran(self) -> int:
        """Tests that were really run."""
        return self.passed + self.failed


def from_junit(report: bytes) -> Counts | None:
    """Counts of a JUnit XML report, or None where it is none. No tree is made of it: a hostile one would be huge."""
    cases: list[list[str]] = []
    level: list[str] = []

    def opened(tag: str, attributes: dict[str, str]) -> None:
        level.append(tag)
        if len(level) > DEEPEST:
            raise ValueError("it is no report")
        if tag == "testcase":
            name = "::".join(part for part in map(attributes.get, ("classname", "name")) if part)
            cases.append([name, ""])
        elif cases and tag in by:
            cases[-1][1] = min(cases[-1][1], tag, key=list(by).index)

    by: dict[str, set[str]] = {tag: set() for tag in ("failure", "error", "skipped", "")}  # the gravest first
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = opened, lambda _: level.pop()
    try:
        text = report.decode()
        # Parsed as text, the encoding it declares counts for nothing, so no entity is declared where none is seen.
        if "<!DOCTYPE" in text or not parser.Parse(text, True):
            return None
    except (expat.ExpatError, ValueError):
        return None
    for name, tag in cases:
        by[tag].add(name)
    failing = by["failure"] | by["error"]
    return Counts(
        len(by[""] - failing),
        len(by["failure"]),
        len(by["error"] - by["failure"]),
        len(by["skipped"]),
        frozenset(failing),
        frozenset(by["skipped"]),
        frozenset(failing.union(*by.values())),
    )


_MEANS = {"xpassed": "passed", "error": "errors", "xfailed": "skipped", "ignored": "skipped", "todo": "skipped"}
_NUMBER = re.compile(r"(\d+) ([a-z]+)")
_WORDS = {"passed", "failed", "errors", "skipped", "total"}


def _sum(rows: Iterable[str], failing: Iterable[str] = ()) -> Counts | None:
    """What rows such as `3 passed, 1 failed` say together; None where no row does."""
    tally: Counter[str] = Counter()
    for number, word in (said for row in rows for said in _NUMBER.findall(row)):
        tally[_MEANS.get(word) or word] += int(number)
    counts = Counts(tally["passed"], tally["failed"], tally["errors"], tally["skipped"], frozenset(failing))
    return counts if _WORDS & tally.keys() else None


_PYTEST_LINE = re.compile(r"^=*[ \t]*((?:\d+ [a-z]+(?: passed| failed| skipped)?(?:, )?)+) in [\d.]+s.*$", re.MULTILINE)
_PYTEST_NAME = re.compile(r"^(FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


def _pytest(text: str) -> Counts | None:
    names = [name for _, name in _PYTEST_NAME.findall(text)]
    none = re.search(r"^=*[ \t]*no tests ran in [\d.]+s", text, re.MULTILINE)
    return _sum(_PYTEST_LINE.findall(text), names) or (Counts(failing=frozenset(names)) if none else None)


def _unittest(text: str) -> Counts | None:
    pattern = r"^Ran (\d+) tests? in [\d.]+s\s+^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$"
    runs = re.findall(pattern, text, re.MULTILINE)
    tally: Counter[str] = Counter()
    for ran, detail in runs:
        tally["ran"] += int(ran)
        for word, number in re.findall(r"(failures|errors|skipped|expected failures)=(\d+)", detail):
            tally[word] += int(number)
    failed, errors, skipped = tally["failures"], tally["errors"], tally["skipped"] + tally["expected failures"]
    names = re.findall(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)", text, re.MULTILINE)
    passed = tally["ran"] - failed - errors - skipped
    return Counts(passed, failed, errors, skipped, frozenset(names)) if runs else None


def _go(text: str) -> Counts | None:
    verbose = re.findall(r"^[ \t]*--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)
    if not verbose:
        return None
    by = {word: frozenset(n for w, n in verbose if w == word) for word in ("PASS", "FAIL", "SKIP")}
    return Counts(len(by["PASS"]), len(by["FAIL"]), 0, len(by["SKIP"]), by["FAIL"], by["SKIP"])


def _cargo(text: str) -> Counts | None:
    rows = re.findall(r"^test result: \w+\. (\d+ passed; \d+ failed; \d+ ignored)", text, re.MULTILINE)
    return _sum(rows, re.findall(r"^test (\S+) \.\.\. FAILED$", text, re.MULTILINE))


def _tap(text: str) -> Counts | None:
    if not re.search(r"^(?:TAP version \d+|1\.\.\d+)", text, re.MULTILINE):
        return None
    rows = re.findall(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)$", text, re.MULTILINE)
    skipped = frozenset(name for _, name in rows if re.search(r"# SKIP", name, re.IGNORECASE))
    good = [name for word, name in rows if word == "ok" and name not in skipped]
    bad = [name for word, name in rows if word == "not ok" and name not in skipped]
    return Counts(len(good), len(bad), 0, len(skipped), frozenset(bad), skipped)


def _javascript(text: str) -> Counts | None:
    return _sum(re.findall(r"^[ \t]*Tests:?[ \t]+((?:\d+ \w+(?:, | \| )?)+)", text, re.MULTILINE)[-1:])


def _plain(text: str) -> Counts | None:
    return _sum(re.findall(r"^(?:\w+: )?(\d+ passed, \d+ failed(?:, \d+ skipped)?)$", text, re.MULTILINE))


_READERS = (_pytest, _unittest, _go, _cargo, _javascript, _tap, _plain)
"""In order; pytest, unittest, `go test -v`, cargo, jest and vitest, TAP, and `N passed, N failed` alone on a line."""


def from_output(output: bytes) -> Counts | None:
    """Counts from what a test command printed, or None when no known runner's summary is in it."""
    text = ANSI.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    return next((counts for reader in _READERS if (counts := reader(text)) is not None), None)
