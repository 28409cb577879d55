"""The policy gate: what a change may touch, decided from tree entries alone. Pure but for reading two files."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from agent_harness.config import Policy
from agent_harness.gates import Case
from agent_harness.types import Allowance, Change, Check, GateOutcome, GateResult

Read = Callable[[str, str], bytes | None]
"""(tree or commit, path) -> the file's bytes, or None where there is none."""

ALWAYS_CHECK_CONFIG = (
    "conftest.py",
    "**/conftest.py",
    # pytest takes the first of these from the folder of its arguments upwards.
    "**/pytest.ini",
    "**/.pytest.ini",
    "**/pytest.toml",
    "**/.pytest.toml",
    "**/tox.ini",
    "noxfile.py",
    "sitecustomize.py",
    "**/sitecustomize.py",
    "usercustomize.py",
    "jest.config.*",
    "vitest.config.*",
    ".mocharc.*",
    "karma.conf.*",
    "phpunit.xml*",
    ".rspec",
    ".cargo/**",
    # An installed distribution, to whoever is started beside it: its entry points are loaded as plugins.
    "**/*.dist-info/**",
    "**/*.egg-info/**",
    "**/*.egg-link",
    "**/*.pth",
    # Files that a runner started in the root would import instead of the real one.
    "pytest.py",
    "pytest/**",
    "_pytest/**",
    "pluggy/**",
    "unittest.py",
    "unittest/**",
)
"""Files that change how tests are found, skipped or judged, whatever is written in them."""


_TOOL_FILES = ("{}.toml", ".{}.toml", "{}.ini", ".{}.ini", "{}.cfg", ".{}", ".{}.*", ".{}rc", ".{}rc.*", "{}.config.*")
"""Where a program whose name stands in a check looks for its settings."""

_RUNNERS = frozenset({"pytest", "unittest", "jest", "vitest", "mocha"})
_SHADOWED = sys.stdlib_module_names | {
    "iniconfig",
    "packaging",
    "exceptiongroup",
    "tomli",
    "pygments",
    "coverage",
    "py",
}
_HOOKS = re.compile(
    rb"\b(?:_pytest|pytest_plugins|pytest_(?:runtest|pyfunc|collect|itemcollected|report|sessionfinish|unconfigure)\w*)\b"
)
"""What nothing but a plugin of the test runner has to name."""


def matches(path: str, globs: Sequence[str]) -> str | None:
    """The first glob that takes a path: `*` within one name, `**` across folders, `dir/` and `dir/**` all below.

    Case does not count: some file systems take names that differ only in it for one."""
    for glob in globs:
        pattern = glob + "**" if glob.endswith("/") else glob
        if re.fullmatch(_regex(pattern), path, re.DOTALL | re.IGNORECASE):
            return glob
    return None


def _regex(glob: str) -> str:
    out, i = "", 0
    while i < len(glob):
        if glob.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif glob.startswith("**", i):
            out, i = out + ".*", i + 2
        elif glob[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif glob[i] == "?":
            out, i = out + "[^/]", i + 1
        else:
            out, i = out + re.escape(glob[i]), i + 1
    return out


class PolicyGate:
    """Refuses a change that touches what it may not, is too large, or alters how it will be judged."""

    name = "policy"

    def __init__(self, policy: Policy, checks: Sequence[Check], read: Read, redact: Callable[[str], str]) -> None:
        self._policy, self._checks, self._read, self._redact = policy, checks, read, redact

    def judge(self, case: Case) -> GateResult:
        """Every broken rule is named, with the way out where there is one."""
        reasons = [f"{r.path}: {r.reason}" for r in case.candidate.refusals]
        for change in case.candidate.changes:
            reasons += self._touches(change, case.item.allow_paths)
            reasons += self._sizes(change)
            reasons += self._secrets(change, case)
        reasons += self._totals(case.candidate.changes)
        if Allowance.CHECK_CONFIG not in case.item.allow:
            reasons += self._check_config(case)
        outcome = GateOutcome.FAIL if reasons else GateOutcome.PASS
        return GateResult(self.name, outcome, tuple(reasons), {"files": [c.shown for c in case.candidate.changes]})

    def _touches(self, change: Change, allowed: Sequence[str]) -> list[str]:
        path = change.path.decode("utf-8", "surrogateescape")
        if matches(path, allowed):
            return []
        if glob := matches(path, self._policy.protected):
            return [f"{change.shown}: protected by `{glob}` (an item may ask for it: --allow-path)"]
        existed = change.old_mode != "000000"
        if existed and (glob := matches(path, self._policy.keep)):
            return [f"{change.shown}: an existing file kept by `{glob}` was {_did(change)} (--allow-path allows it)"]
        return []

    def _sizes(self, change: Change) -> list[str]:
        reasons = []
        if change.new_mode == "160000":
            reasons.append(f"{change.shown}: a submodule entry was added or moved")
        if change.new_size > self._policy.max_file_bytes:
            reasons.append(
                f"{change.shown}: {change.new_size} bytes, over max_file_bytes {self._policy.max_file_bytes}"
            )
        if change.binary and change.new_mode != "000000" and not self._policy.allow_binary:
            reasons.append(f"{change.shown}: a binary file (policy.allow_binary is false)")
        return reasons

    def _secrets(self, change: Change, case: Case) -> list[str]:
        """A model's provider knows its own key, and there are more ways to write one down than a redactor knows."""
        path = change.path.decode("utf-8", "surrogateescape")
        old, new = ((self._read(t, path) or b"").decode("utf-8", "replace") for t in (case.base, case.candidate.tree))
        if self._redact(new) == new or self._redact(old) != old:
            return []
        return [f"{change.shown}: it holds a key of the harness's own configuration"]

    def _totals(self, changes: Sequence[Change]) -> list[str]:
        reasons = []
        if len(changes) > self._policy.max_files:
            reasons.append(f"{len(changes)} files changed, over policy.max_files {self._policy.max_files}")
        total = sum(change.new_size for change in changes)
        if total > self._policy.max_bytes:
            reasons.append(f"the changed files hold {total} bytes, over policy.max_bytes {self._policy.max_bytes}")
        return reasons

    def _check_config(self, case: Case) -> list[str]:
        reasons = []
        words = _words(self._checks)
        for change in case.candidate.changes:
            path = change.path.decode("utf-8", "surrogateescape")
            if matches(path, case.item.allow_paths):
                continue
            if change.new_mode == "120000" and path.rsplit("/", 1)[-1] in _SECTIONS:
                why = "a settings file that is a link"
            else:
                why = self._steers_checks(path, case, words)
            if why:
                reasons.append(f"{change.shown}: {why}, which changes how the work is judged (--allow check-config)")
        return reasons

    def _steers_checks(self, path: str, case: Case, words: frozenset[str]) -> str:
        if matches(path, ALWAYS_CHECK_CONFIG):
            return "check configuration"
        name = path.rsplit("/", 1)[-1]
        if path in words and not (_is_test(path) and words & _RUNNERS):
            return "a script the checks run"
        if (name in {"Makefile", "makefile", "GNUmakefile"} or name.endswith(".mk")) and "make" in words:
            return "a makefile the checks run"
        if matches(
            name, [glob.format(word) for word in words if re.fullmatch(r"[a-z][\w-]*", word) for glob in _TOOL_FILES]
        ):
            return "settings of a program the checks run"
        if _shadows(path) and self._read(case.base, path) is None:
            return "a module that Python or pytest would import in place of its own"
        if name.endswith(".py"):
            old, new = (self._read(tree, path) or b"" for tree in (case.base, case.candidate.tree))
            if found := set(_HOOKS.findall(new)) - set(_HOOKS.findall(old)):
                return f"it reaches into the test runner ({b', '.join(sorted(found)).decode()})"
        if reader := _SECTIONS.get(name):
            settings = (_settings(reader, self._read(t, path), words) for t in (case.base, case.candidate.tree))
            if next(settings) != next(settings):
                return "its test settings differ"
        return ""


def _shadows(path: str) -> bool:
    """A new top-level module of this path hides one that the checks need."""
    module = path.removeprefix("src/").removesuffix("/__init__.py").removesuffix(".py")
    return module != path and module in _SHADOWED


def _did(change: Change) -> str:
    return "deleted" if change.new_mode == "000000" else "changed"


def _is_test(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return any(fnmatchcase(name, glob) for glob in ("test_*", "*_test.*", "*.test.*", "*.spec.*"))


def _words(checks: Sequence[Check]) -> frozenset[str]:
    words: set[str] = set()
    for check in checks:
        parts = {check.command, *check.command.split(), *re.findall(r"[\w./+-]+", check.command)}
        words |= {part.removeprefix("./") for part in parts}
    return frozenset(words)


def _pyproject(text: str, words: frozenset[str]) -> Any:
    data = tomllib.loads(text)
    tool, points = data.get("tool", {}), data.get("project", {}).get("entry-points", {})
    judged = {"pytest", "coverage", "tox", "nox", "hatch", *words}
    return {name: tool.get(name) for name in judged}, points.get("pytest11")


def _setup_cfg(text: str, words: frozenset[str]) -> Any:
    """The lines of the sections that count, as they stand: tools differ in how they read them."""
    judged, kept = ("pytest", "coverage", "aliases", "entry_points", *words), []
    section = ""
    for line in text.splitlines():
        section = line if line.lstrip().startswith("[") else section
        if set(re.findall(r"\w+", section)).intersection(judged):
            kept.append(line)
    return kept


def _package_json(text: str, words: frozenset[str]) -> Any:
    data = json.loads(text)
    return {name: data.get(name) for name in {"scripts", "jest", "vitest", "mocha", "ava", "c8", "nyc", *words}}


_SECTIONS = {"pyproject.toml": _pyproject, "setup.cfg": _setup_cfg, "package.json": _package_json}


def _settings(reader: Callable[[str, frozenset[str]], Any], data: bytes | None, words: frozenset[str]) -> Any:
    """The judged part of a settings file; text that does not parse counts as its own, so any change to it shows."""
    if data is None:
        return reader("{}" if reader is _package_json else "", words)
    text = data.decode("utf-8", "replace")
    try:
        return reader(text, words)
    except (ValueError, AttributeError):
        return text
