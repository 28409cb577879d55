"""The embedded demonstration: a small real repository with a real bug, and recorded answers of a model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from agent_harness.errors import GitFault
from agent_harness.types import NewItem

HERE = Path(__file__).parent
RECORDING = HERE / "recording.jsonl"
"""The answers. Made by `tests/e2e/record_demo.py`, which drives the real harness with a scripted server."""

FILES = {
    "README.md": "# bill\n\nSplits a bill between people, to the cent.\n\nRun the tests with `python3 -m pytest`.\n",
    ".gitignore": "__pycache__/\n.pytest_cache/\n",
    "bill/__init__.py": '"""Splitting bills."""\n\nfrom bill.money import format_cents, parse_cents\n'
    'from bill.split import split\n\n__all__ = ["format_cents", "parse_cents", "split"]\n',
    "bill/money.py": '''"""Amounts of money as whole cents."""


def parse_cents(text: str) -> int:
    """Read an amount such as `12.34`, `12` or `.5` as cents."""
    whole, _, fraction = text.strip().partition(".")
    return int(whole or 0) * 100 + int(fraction.ljust(2, "0")[:2])


def format_cents(cents: int) -> str:
    """Write cents as `12.34`."""
    return f"{cents // 100}.{cents % 100:02d}"
''',
    "bill/split.py": '''"""Who pays what."""


def split(total: int, people: int) -> list[int]:
    """Split `total` cents between people: the shares add up to the total and differ by one cent at most."""
    if people < 1:
        raise ValueError("a bill needs at least one person")
    share = round(total / people)
    return [share] * people
''',
    "tests/test_money.py": """from bill import format_cents, parse_cents


def test_reads_amounts():
    assert parse_cents("12.34") == 1234
    assert parse_cents("12") == 1200
    assert parse_cents(".5") == 50


def test_writes_amounts():
    assert format_cents(1234) == "12.34"
    assert format_cents(5) == "0.05"
""",
    "tests/test_split.py": """import pytest

from bill import split


def test_splits_evenly():
    assert split(900, 3) == [300, 300, 300]


@pytest.mark.parametrize(("total", "people"), [(1000, 3), (101, 2), (5, 7), (0, 4)])
def test_no_cent_is_lost(total, people):
    assert sum(split(total, people)) == total


def test_shares_differ_by_one_cent_at_most():
    shares = split(1000, 3)
    assert max(shares) - min(shares) <= 1


def test_needs_somebody():
    with pytest.raises(ValueError):
        split(100, 0)
""",
}

SETTINGS = """\
[project]
checks = ["python3 -m pytest -q"]

[policy]
keep = ["tests/**"]

[routes.recorded]
model = "recorded/demo"
price = { input = "3.00", output = "15.00" }

[roles.implementer]
routes = ["recorded"]

[roles.reviewer]
routes = ["recorded"]
"""

ITEM = NewItem(
    id="lost-cents",
    title="Splitting a bill loses cents",
    brief="split(1000, 3) gives [333, 333, 333]: a cent is lost. Shares must add up to the total and differ by one cent "
    "at most. Leave the tests as they are.",
    key="demo",
)


def make_repository(folder: Path) -> Path:
    """Write the repository into a new folder and commit it; the same commit id every time. Raises GitFault."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    person = {"NAME": "Demo", "EMAIL": "demo@example.invalid", "DATE": "2026-01-01T00:00:00+0000"}
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in person.items()},
    }
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Split bills"]):
        done = subprocess.run(["git", "-C", str(folder), *words], env=env, capture_output=True, check=False, timeout=60)
        if done.returncode:
            raise GitFault(
                "the demonstration's repository could not be made", why=done.stderr.decode("utf-8", "replace")
            )
    (folder / "harness.toml").write_text(SETTINGS)
    return folder
