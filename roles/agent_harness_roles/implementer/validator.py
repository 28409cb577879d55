"""A submission of the implementer must rest on work: the tree itself is judged by the gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_harness.types import JSON
from agent_harness_roles.evidence import Evidence

_FEWEST_WORDS = 3
_SHORTEST_REASON = 40


def validate(
    submission: JSON,
    facts: Mapping[str, Any],  # noqa: ARG001 - the interface of every validator
    evidence: Evidence,
) -> tuple[list[str], dict[str, Any]]:
    """Refuse a finish without any work, a placeholder, and an impossibility without a reason."""
    problems = []
    if len(set(submission["summary"].split())) < _FEWEST_WORDS:
        problems.append("summary: say in a sentence what was wrong and what you changed")
    if submission["outcome"] == "impossible":
        if not evidence.looked:
            problems.append("outcome impossible: no command of this run succeeded, so nothing was looked at yet")
        if len(submission.get("details", "").strip()) < _SHORTEST_REASON:
            problems.append("details: say why it is impossible and what you looked at")
    elif not evidence.looked and not evidence.edited:
        problems.append("outcome done: no command of this run succeeded and no file was edited; do the task first")
    return problems, dict(submission)
