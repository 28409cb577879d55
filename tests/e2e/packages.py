"""Real repositories for the end-to-end tests: a package's released source with one of its own bug fixes undone.

Both releases come as source distributions from the package index that pip is configured for, pinned by digest, kept in
`.cache/sdists`. Nothing of them is run outside a sandbox, and none of their code stands here: the bug, the fix and the
wrong fix are all computed from the two releases.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "sdists"
WHEN = "2024-01-02T03:04:05+00:00"


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which occurs exactly once in the file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Package:
    """One bug: `file` as of `before` in the tree of `after` makes the test `failing` fail."""

    name: str
    stem: str  # what its source distributions' names begin with
    before: tuple[str, str]  # version, sha256
    after: tuple[str, str]
    file: str
    failing: str
    brief: str
    slip: tuple[str, str] | None  # what somebody could get wrong in the fix; None: does only its first half
    check: str = "python3 -m pytest -q -p no:cacheprovider tests"


PACKAGES = (
    Package(
        name="pathspec",
        stem="pathspec",
        before=("0.12.0", "c57e16065a97b7beb175f13c84d27cb05f7b7315741c2fbd5de541042f4ea6e1"),
        after=("0.12.1", "a482d51503a1ab33b1c67a6c3813a26953dbdc71c31dacaef9a838c4e29f5712"),
        file="pathspec/pathspec.py",
        failing="tests/test_03_pathspec.py::PathSpecTest::test_01_match_file_3_unmatch",
        brief="match_file() answers None for a file that no pattern matches. It promises a bool.",
        slip=("bool(include)", "include is not None"),
    ),
    Package(
        name="mistune",
        stem="mistune",
        before=("3.1.3", "a7035c21782b2becb6be62f8f25d3df81ccb4d6fa477a6525b15af06539f02a0"),
        after=("3.1.4", "b5a7f801d389f724ec702840c11d8fc48f2b33519102fc7ee739e8177b672164"),
        file="src/mistune/block_parser.py",
        failing="tests/test_misc.py::TestMiscCases::test_unicode_whitespace",
        brief="Ideographic spaces at the start of a `# heading` vanish. Only ASCII white space may be trimmed there.",
        slip=(".strip(string.whitespace)", ".rstrip(string.whitespace)"),
    ),
    Package(
        name="sqlparse",
        stem="sqlparse",
        before=("0.5.1", "bb6b4df465655ef332548e24f08e205afc81b9ab86cb1c45657a7ff173a3a00e"),
        after=("0.5.2", "9e37b35e16d1cc652a2545f0997c1deb23ea28fa1f3eefe609eee3063c3b105f"),
        file="sqlparse/filters/others.py",
        failing="tests/test_format.py::TestFormat::test_strip_comments_preserves_hint",
        brief="format(sql, strip_comments=True) removes optimizer hints too (`--+`, `/*+ */`). Hints must stay.",
        slip=None,
    ),
)


@dataclass(frozen=True)
class Case:
    """A git repository with the bug committed on `main`, and what can be done to it."""

    package: Package
    path: Path
    commit: str
    fix: tuple[Edit, ...]
    wrong_fix: tuple[Edit, ...]
    weaken: Edit  # makes the failing test pass by doing nothing: what policy must stop


def make_case(package: Package, folder: Path) -> Case:
    """The repository of one package, new in `folder`. Skips the test where the index does not answer; in CI fails it."""
    before, after = (_sources(package, version, digest) for version, digest in (package.before, package.after))
    broken, fixed = before[package.file].decode(), after[package.file].decode()
    files = {**after, package.file: before[package.file]}
    files.setdefault(".gitignore", b"__pycache__/\n")
    path = folder / package.name
    commit = _commit(path, files)
    fix = tuple(edits(package.file, broken, fixed))
    if package.slip is None:
        wrong = fix[:1]
    else:
        wrong = tuple(Edit(edit.path, edit.old, edit.new.replace(*package.slip)) for edit in fix)
    assert wrong != fix
    test_file, _, test = package.failing.partition("::")
    head = f"    def {test.split('::')[-1]}(self):\n"
    if head not in files[test_file].decode():
        head = head.replace("    def", "\tdef")
    indent = head[: len(head) - len(head.lstrip())] * 2
    return Case(package, path, commit, fix, wrong, Edit(test_file, head, f"{head}{indent}return\n"))


def apply(text: str, changes: tuple[Edit, ...]) -> str:
    """The text after the edits. Asserts that each place is the only one of its kind."""
    for edit in changes:
        assert text.count(edit.old) == 1, edit.old
        text = text.replace(edit.old, edit.new)
    return text


def edits(path: str, old: str, new: str) -> Iterator[Edit]:
    """The difference as replacements of whole lines, each with as much context as makes it occur once."""
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    hunks: list[list[int]] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        while i1 == i2 or old.count("".join(a[i1:i2])) > 1:  # both sides move over equal lines together
            if i1 > 0 and j1 > 0 and a[i1 - 1] == b[j1 - 1]:
                i1, j1 = i1 - 1, j1 - 1
            else:
                i2, j2 = i2 + 1, j2 + 1
        if hunks and i1 <= hunks[-1][1]:
            hunks[-1][1], hunks[-1][3] = i2, j2
        else:
            hunks.append([i1, i2, j1, j2])
    for i1, i2, j1, j2 in hunks:
        yield Edit(path, "".join(a[i1:i2]), "".join(b[j1:j2]))


# --- from the index -----------------------------------------------------------------------------------------


def _sources(package: Package, version: str, digest: str) -> dict[str, bytes]:
    """The regular files of one release by their paths below its top folder."""
    archive = _archive(f"{package.stem}-{version}.tar.gz", package.name, digest)
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and ".." not in path.parts:
                stream = tar.extractfile(member)
                assert stream is not None
                found[str(path)] = stream.read()
    return found


def _archive(file: str, name: str, digest: str) -> Path:
    """The archive with this digest, from the cache or the index."""
    import requests

    kept = CACHE / file
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == digest:
        return kept
    faults = []
    for index in _indexes():
        try:
            page = requests.get(
                f"{index.rstrip('/')}/{name}/",
                headers={"Accept": "application/vnd.pypi.simple.v1+json"},
                timeout=30,
                verify=_authorities(),
            )
            page.raise_for_status()
            url = next(row["url"] for row in page.json()["files"] if row["filename"] == file)
            data = requests.get(urljoin(page.url, url), timeout=60, verify=_authorities()).content
        except (requests.RequestException, ValueError, KeyError, StopIteration) as fault:
            faults.append(f"{type(fault).__name__}: {fault}")
            continue
        assert hashlib.sha256(data).hexdigest() == digest, f"{file} is not the file that was pinned"
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_name(f"{file}.{os.getpid()}")
        fresh.write_bytes(data)
        fresh.replace(kept)
        return kept
    reason = f"the package index did not give {file}: {'; '.join(faults)[:300]}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _settings() -> dict[str, str]:
    """What pip is set to, by its files and by the environment."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def _authorities() -> str | bool:
    """The certificates that pip trusts, where it is told."""
    return next((value.strip("'") for key, value in _settings().items() if key.endswith(".cert")), True)


def _indexes() -> list[str]:
    """The index addresses that pip is set to, its own default first if none is."""
    settings = _settings()
    own = [value.strip("'") for key, value in settings.items() if key.endswith(".index-url")]
    more = [
        word for key, value in settings.items() if key.endswith(".extra-index-url") for word in value.strip("'").split()
    ]
    if not own:
        ask = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
        own = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    return [address for address in [*own[-1:], *more] if address.startswith("http")]


# --- git ----------------------------------------------------------------------------------------------------


def _commit(path: Path, files: dict[str, bytes]) -> str:
    """A repository with one commit of these files; the same files give the same commit id on every machine."""
    for name, data in files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(path),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()},
    }

    def git(*words: str) -> str:
        command = ["git", "-c", "core.autocrlf=false", *words]
        return subprocess.run(command, cwd=path, env=environment, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    git("add", "--all", "--force")
    git("commit", "-q", "-m", "The released source, with a bug")
    return git("rev-parse", "HEAD").strip()


_WHO = {"NAME": "A Maintainer", "EMAIL": "maintainer@example.org", "DATE": WHEN}
