"""What a test command says it ran: counts and names, read from its report or its printed summary.

A check is trusted only as far as it can be counted: exit code 0 alone never proves that a test ran. Reports
are written by code under judgement, so everything here only ever makes a pass harder, never easier.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


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

    def __add__(self, other: Counts) -> Counts:
        names = None if self.names is None or other.names is None else self.names | other.names
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.errors + other.errors,
            self.skipped + other.skipped,
            self.failing | other.failing,
            self.skipping | other.skipping,
            names,
        )


def from_junit(report: bytes) -> Counts | None:
    """Counts of a JUnit XML report, or None where it is none."""
    try:
        text = report.decode()
        # Parsed as text, the encoding it declares counts for nothing, so no entity is declared where none is seen.
        root = None if "<!DOCTYPE" in text else ET.fromstring(text)  # noqa: S314
    except (ET.ParseError, ValueError):
        return None
    if root is None:
        return None
    passed: set[str] = set()
    failing: set[str] = set()
    errors: set[str] = set()
    skipping: set[str] = set()
    for case in root.iter("testcase"):
        name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        tags = {child.tag for child in case}
        if "failure" in tags:
            failing.add(name)
        elif "error" in tags:
            errors.add(name)
        elif "skipped" in tags:
            skipping.add(name)
        else:
            passed.add(name)
    passed -= failing | errors
    return Counts(
        len(passed),
        len(failing),
        len(errors - failing),
        len(skipping),
        frozenset(failing | errors),
        frozenset(skipping),
        frozenset(passed | failing | errors | skipping),
    )


_PYTEST_WORDS = {
    "passed": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "error": "errors",
    "errors": "errors",
    "skipped": "skipped",
    "xfailed": "skipped",
}
_PYTEST_LINE = re.compile(r"^=*[ \t]*((?:\d+ [a-z]+(?: passed| failed| skipped)?(?:, )?)+) in [\d.]+s.*$", re.MULTILINE)
_PYTEST_NAME = re.compile(r"^(FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


def _pytest(text: str) -> Counts | None:
    total = Counts() if re.search(r"^=*[ \t]*no tests ran in [\d.]+s", text, re.MULTILINE) else None
    for line in _PYTEST_LINE.finditer(text):
        told = re.findall(r"(\d+) ([a-z]+)", line.group(1))
        if any(word in _PYTEST_WORDS for _, word in told):
            tally = Counter({"passed": 0})
            for number, word in told:
                tally[_PYTEST_WORDS.get(word, "")] += int(number)
            counts = Counts(tally["passed"], tally["failed"], tally["errors"], tally["skipped"])
            total = (total or Counts()) + counts
    if total is None:
        return None
    names = frozenset(name for _, name in _PYTEST_NAME.findall(text))
    return total + Counts(failing=names)


def _unittest(text: str) -> Counts | None:
    total: Counts | None = None
    pattern = r"^Ran (\d+) tests? in [\d.]+s\s+^(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$"
    for ran, _, detail in re.findall(pattern, text, re.MULTILINE):
        told = dict(re.findall(r"(failures|errors|skipped|expected failures)=(\d+)", detail))
        failed, errors = int(told.get("failures", 0)), int(told.get("errors", 0))
        skipped = int(told.get("skipped", 0)) + int(told.get("expected failures", 0))
        total = (total or Counts()) + Counts(int(ran) - failed - errors - skipped, failed, errors, skipped)
    if total is None:
        return None
    names = re.findall(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)", text, re.MULTILINE)
    return total + Counts(failing=frozenset(names))


def _go(text: str) -> Counts | None:
    verbose = re.findall(r"^[ \t]*--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)
    if not verbose:
        return None
    by = {word: frozenset(n for w, n in verbose if w == word) for word in ("PASS", "FAIL", "SKIP")}
    return Counts(len(by["PASS"]), len(by["FAIL"]), 0, len(by["SKIP"]), by["FAIL"], by["SKIP"])


def _cargo(text: str) -> Counts | None:
    rows = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text, re.MULTILINE)
    if not rows:
        return None
    passed, failed, ignored = (sum(int(row[i]) for row in rows) for i in range(3))
    names = re.findall(r"^test (\S+) \.\.\. FAILED$", text, re.MULTILINE)
    return Counts(passed, failed, 0, ignored, frozenset(names))


def _tap(text: str) -> Counts | None:
    if not re.search(r"^(?:TAP version \d+|1\.\.\d+)", text, re.MULTILINE):
        return None
    rows = re.findall(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)$", text, re.MULTILINE)
    skipped = frozenset(name for _, name in rows if re.search(r"# SKIP", name, re.IGNORECASE))
    good = [name for word, name in rows if word == "ok" and name not in skipped]
    bad = [name for word, name in rows if word == "not ok" and name not in skipped]
    return Counts(len(good), len(bad), 0, len(skipped), frozenset(bad), skipped)


def _javascript(text: str) -> Counts | None:
    rows = re.findall(r"^[ \t]*Tests:?[ \t]+((?:\d+ \w+(?:, | \| )?)+)", text, re.MULTILINE)
    if not rows:
        return None
    told = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", rows[-1])}
    skipped = told.get("skipped", 0) + told.get("todo", 0)
    return Counts(told.get("passed", 0), told.get("failed", 0), 0, skipped)


def _plain(text: str) -> Counts | None:
    rows = re.findall(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", text, re.MULTILINE)
    if not rows:
        return None
    passed, failed, skipped = (sum(int(row[i] or 0) for row in rows) for i in range(3))
    return Counts(passed, failed, 0, skipped)


_READERS = (_pytest, _unittest, _go, _cargo, _javascript, _tap, _plain)
"""In order; pytest, unittest, `go test -v`, cargo, jest and vitest, TAP, and `N passed, N failed` alone on a line."""


def from_output(output: bytes) -> Counts | None:
    """Counts from what a test command printed, or None when no known runner's summary is in it."""
    text = ANSI.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    for reader in _READERS:
        counts = reader(text)
        if counts is not None:
            return counts
    return None
