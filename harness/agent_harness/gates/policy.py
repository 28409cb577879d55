"""The policy gate: what a change may touch, decided from tree entries alone. Pure but for reading two files."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from agent_harness.config import Policy
from agent_harness.gates import Case
from agent_harness.types import Allowance, Change, Check, GateOutcome, GateResult
from agent_harness.workspace.entries import LINK

Read = Callable[[str, str], bytes | None]
"""(tree or commit, path) -> the file's bytes, or None where there is none."""

ALWAYS_CHECK_CONFIG = (
    # pytest takes the first of these from the folder of its arguments upwards.
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml", "**/tox.ini"),
    *("**/noxfile.py", "**/jest.config.*", "**/vite.config.*", "**/vitest.config.*", "**/.mocharc.*"),
    *("**/karma.conf.*", "**/phpunit.xml*", "**/.rspec", "**/.cargo/**", "**/rust-toolchain*", "**/.mvn/**"),
    # Python imports these when it starts; what is compiled or installed is run in place of its source or the runner.
    *("**/sitecustomize*", "**/sitecustomize/**", "**/usercustomize*", "**/usercustomize/**"),
    *("**/__pycache__/**", "**/*.pyc", "**/node_modules/**"),
    # An installed distribution, to whoever is started beside it: its entry points are loaded as plugins.
    *("**/*.dist-info/**", "**/*.egg-info/**", "**/*.egg-link", "**/*.pth"),
    # Files that a runner started in the root would import instead of the real one.
    *("pytest.py", "pytest/**", "_pytest/**", "pluggy/**", "unittest.py", "unittest/**"),
)
"""Files that change how tests are found, skipped or judged, whatever is written in them."""


_TOOL_FILE = r"\.?(?:{0})\.(?:toml|ini)|(?:{0})\.cfg|\.(?:{0})(?:rc)?(?:\..*)?|(?:{0})(?:\.config\..*|file(?:\..*)?)"
"""Where a program whose name stands in a check looks for its settings."""

_RUNNERS = frozenset({"pytest", "unittest", "jest", "vitest", "mocha"})
_OFTEN_THERE = {
    *("_pytest", "pluggy", "xdist", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments", "coverage", "py"),
}
_SHADOWED = sys.stdlib_module_names | _OFTEN_THERE
_HOOKS = re.compile(
    rb"\b(?:_pytest|load_tests|pytest_plugins|pytest_(?:runtest|pyfunc|collect|itemcollected|report|sessionfinish|unconfigure)\w*)\b"
)
"""What nothing but a plugin of the test runner has to name."""


_ORDER = re.compile("[\u202a-\u202e\u2066-\u2069]")


def matches(path: str, globs: Sequence[str]) -> str | None:
    """The first glob that takes a path: `*` within one name, `**` across folders, `dir/` and `dir/**` all below.

    Case does not count: some file systems take names that differ only in it for one."""
    for glob in globs:
        pattern = glob + "**" if glob.endswith("/") else glob
        if re.fullmatch(_regex(pattern), path, re.DOTALL | re.IGNORECASE):
            return glob
    return None


def moved(changes: Sequence[Change], depends: Sequence[str]) -> str:
    """The changed files that name dependencies: a sandbox is made from the base, and has those of the base."""
    return ", ".join(change.shown for change in changes if matches(change.shown, depends))


_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _reaches(change: Change, path: str, globs: Sequence[str]) -> str | None:
    """The first glob that takes a path or, where that is a link, what would be found by way of it."""
    found = matches(path, globs)
    if found or LINK not in {change.old_mode, change.new_mode}:
        return found
    folder = f"{path}/"
    return matches(folder, globs) or next((g for g in globs if g.casefold().startswith(folder.casefold())), None)


def _regex(glob: str) -> str:
    return "".join(_GLOBS.get(part) or re.escape(part) for part in re.split(r"(\*\*/?|[*?])", glob))


class PolicyGate:
    """Refuses a change that touches what it may not, is too large, or alters how it will be judged."""

    name = "policy"

    def __init__(self, policy: Policy, checks: Sequence[Check], read: Read, redact: Callable[[str], str]) -> None:
        self._policy, self._checks, self._read, self._redact = policy, checks, read, redact

    def judge(self, case: Case) -> GateResult:
        """Every broken rule is named, with the way out where there is one."""
        reasons = [f"{r.path}: {r.reason}" for r in case.candidate.refusals]
        words = _words(self._checks)
        for change in case.candidate.changes:
            path = change.path.decode("utf-8", "surrogateescape")
            old, new = (self._read(tree, path) for tree in (case.base, case.candidate.tree))
            told = [*self._sizes(change), *self._secrets(old or b"", new or b"")]
            if not matches(path, case.item.allow_paths):
                told = [*self._touches(change, path), *told, *self._disguised(old or b"", new or b"")]
                why = _place(change, path, words, fresh=old is None) or _contents(path, old, new, words)
                if why and Allowance.CHECK_CONFIG not in case.item.allow:
                    told.append(f"{why}, which changes how the work is judged (--allow check-config)")
            reasons += [f"{change.shown}: {one}" for one in told]
        reasons += self._totals(case.candidate.changes)
        outcome = GateOutcome.FAIL if reasons else GateOutcome.PASS
        return GateResult(self.name, outcome, tuple(reasons), {"files": [c.shown for c in case.candidate.changes]})

    def _touches(self, change: Change, path: str) -> list[str]:
        if glob := _reaches(change, path, self._policy.protected):
            return [f"protected by `{glob}` (an item may ask for it: --allow-path)"]
        if change.old_mode != "000000" and (glob := _reaches(change, path, self._policy.keep)):
            did = "deleted" if change.new_mode == "000000" else "changed"
            return [f"an existing file kept by `{glob}` was {did} (--allow-path allows it)"]
        return []

    def _sizes(self, change: Change) -> list[str]:
        reasons = []
        if change.new_mode == "160000":
            reasons.append("a submodule entry was added or moved")
        if change.new_size > self._policy.max_file_bytes:
            reasons.append(f"{change.new_size} bytes, over max_file_bytes {self._policy.max_file_bytes}")
        if change.binary and change.new_mode != "000000" and not self._policy.allow_binary:
            reasons.append("a binary file (policy.allow_binary is false)")
        return reasons

    @staticmethod
    def _disguised(old: bytes, new: bytes) -> list[str]:
        """A person who reads such a line sees other code than the one that runs."""
        found = sorted(set(_ORDER.findall(new.decode("utf-8", "replace"))) - set(old.decode("utf-8", "replace")))
        named = ", ".join(f"U+{ord(one):04X}" for one in found)
        return [f"it holds characters that show text in another order ({named})"] if found else []

    def _secrets(self, old: bytes, new: bytes) -> list[str]:
        """A model's provider knows its own key, and there are more ways to write one down than a redactor knows."""
        had, has = (self._redact(text) != text for text in (data.decode("utf-8", "replace") for data in (old, new)))
        return ["it holds a key of the harness's own configuration"] if has and not had else []

    def _totals(self, changes: Sequence[Change]) -> list[str]:
        reasons = []
        if len(changes) > self._policy.max_files:
            reasons.append(f"{len(changes)} files changed, over policy.max_files {self._policy.max_files}")
        total = sum(change.new_size for change in changes)
        if total > self._policy.max_bytes:
            reasons.append(f"the changed files hold {total} bytes, over policy.max_bytes {self._policy.max_bytes}")
        return reasons


def _place(change: Change, path: str, words: frozenset[str], *, fresh: bool) -> str:
    """How a file steers what judges the change, by its name and kind alone; an empty text where it does not."""
    name = path.rsplit("/", 1)[-1]
    if change.new_mode == LINK and name in _SECTIONS:
        return "a settings file that is a link"
    if _reaches(change, path, ALWAYS_CHECK_CONFIG):
        return "check configuration"
    if path in words and not (_is_test(path) and words & _RUNNERS):
        return "a script the checks run"
    if (name in {"Makefile", "makefile", "GNUmakefile"} or name.endswith(".mk")) and "make" in words:
        return "a makefile the checks run"
    tools = "|".join(word for word in words if re.fullmatch(r"[a-z][\w-]*", word))
    if re.fullmatch(_TOOL_FILE.format(tools or "(?!)"), name, re.DOTALL | re.IGNORECASE):
        return "settings of a program the checks run"
    shadows = fresh and _shadows(path, link=change.new_mode == LINK)
    return "a module that Python or pytest would import in place of its own" if shadows else ""


def _contents(path: str, old: bytes | None, new: bytes | None, words: frozenset[str]) -> str:
    """How what changed in a file does."""
    if path.endswith(".py") and (found := set(_HOOKS.findall(new or b"")) - set(_HOOKS.findall(old or b""))):
        return f"it reaches into the test runner ({b', '.join(sorted(found)).decode()})"
    reader = _SECTIONS.get(path.rsplit("/", 1)[-1])
    differ = reader and _settings(reader, old, words) != _settings(reader, new, words)
    return "its test settings differ" if differ else ""


def _shadows(path: str, *, link: bool) -> bool:
    """A new top-level module of this path hides one that the checks need. A link may be to a package."""
    head, _, inner = path.removeprefix("src/").partition("/")
    module, _, kind = head.partition(".")
    imported = link or inner.partition(".")[0] == "__init__" or (not inner and kind.endswith(("py", "so")))
    return imported and (module in _SHADOWED or module.startswith(("pytest", "_hypothesis")))


def _is_test(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return bool(matches(name, ("test_*", "*_test.*", "*.test.*", "*.spec.*")))


def _words(checks: Sequence[Check]) -> frozenset[str]:
    words: set[str] = set()
    for check in checks:
        parts = {check.command, *check.command.split(), *re.findall(r"[\w./+-]+", check.command)}
        words |= {part.removeprefix("./") for part in parts}
        for folder in re.findall(r"\bcd ([\w./+-]+)", check.command):
            words |= {f"{folder.removeprefix('./').rstrip('/')}/{part.removeprefix('./')}" for part in parts}
        for module in re.findall(r" -[mp] ?([\w.]+)", check.command):
            words |= {module.replace(".", "/") + end for end in (".py", "/__main__.py")}
    return frozenset(words)


def _pyproject(text: str, words: frozenset[str]) -> Any:
    data = tomllib.loads(text)
    tool, points = data.get("tool", {}), data.get("project", {}).get("entry-points", {})
    judged = {"agent-harness", "pytest", "coverage", "tox", "nox", "hatch", *words}
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
