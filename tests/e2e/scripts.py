"""Scripted conversations: what a model says to carry an item through, as entries of the scripted server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fakes.openai_server import Seen, call

SPLIT_FIX = {
    "old": "    share = round(total / people)\n    return [share] * people\n",
    "new": "    share, left = divmod(total, people)\n    return [share + 1] * left + [share] * (people - left)\n",
}
SPLIT_WRONG = {"old": "    share = round(total / people)\n", "new": "    share = total // people + 1\n"}
TESTS = "python3 -m pytest -q"


def bash(command: str, **entry: Any) -> dict[str, Any]:
    return call("bash", {"command": command}, **entry)


def edit(path: str, *edits: dict[str, str], **entry: Any) -> dict[str, Any]:
    return call("edit", {"path": path, "edits": list(edits)}, **entry)


def done(
    summary: str = "The shares now add up to the total and differ by one cent at most.", **entry: Any
) -> dict[str, Any]:
    return call("submit", {"outcome": "done", "summary": summary}, **entry)


SUMMARY = "The remainder is spread over the first shares, the tests pass on the candidate and fail on the base."


def verdict(word: str = "pass", *, findings: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """What a reviewer says of the diff alone."""
    said = {"verdict": word, "summary": SUMMARY, "confidence": 0.9, "findings": list(findings)}
    return call("submit", said | more)


def after_story(word: str = "pass", *, story: str = "", **more: Any) -> Callable[[Seen], dict[str, Any]]:
    """What it says once it was told the story: of the words `story` that stand in it, or of its first line."""

    def entry(seen: Seen) -> dict[str, Any]:
        told = story or re.findall(r"<story \w+>\n(.+)", seen.messages[-1]["content"])[0][:600]
        claim = {"statement": told, "support": "not_checked", "why": "It says nothing of the code."}
        return verdict(word, **({"claims": [claim]} | more))

    return entry


IMPLEMENTER = [
    bash("git log --oneline | head -5; git ls-files", content="I start by looking at the repository."),
    bash(TESTS, content="What fails?"),
    bash("cat bill/split.py tests/test_split.py"),
    edit("bill/split.py", SPLIT_FIX, content="`round` drops the remainder. I spread it over the first shares."),
    bash(TESTS),
    bash("git diff"),
    done(),
]
REVIEWER = [
    bash("cat bill/split.py", content="I read the changed file whole."),
    bash(f"cp -r /base /scratch/base && cd /scratch/base && {TESTS} 2>&1 | tail -4", content="The base should fail."),
    bash(f"cp -r /workspace /scratch/head && cd /scratch/head && {TESTS} 2>&1 | tail -4"),
    bash(
        "cd /scratch/head && python3 -c 'from bill import split\n"
        "assert all(sum(split(t, p)) == t and max(split(t, p)) - min(split(t, p)) <= 1\n"
        '           for t in range(300) for p in range(1, 30)); print("holds for 8,700 bills")\''
    ),
    verdict(),
    after_story(),
]
