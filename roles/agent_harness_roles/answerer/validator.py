"""An answer counts when everything it cites is there. Facts: those of `citing`."""

from typing import Any

from agent_harness.types import JSON
from agent_harness_roles.citing import Facts, followed
from agent_harness_roles.evidence import Evidence


def validate(submission: JSON, facts: Facts, evidence: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Problems, or the answer with what each citation led to."""
    problems, cites = followed("evidence", submission["evidence"], facts, evidence)
    if not evidence.looked:
        problems.append("no command of this run succeeded: look at the repository before you answer")
    if submission["outcome"] == "answered" and not submission["evidence"]:
        problems.append("evidence: an answer without any is none; cite what it rests on")
    return problems, {**submission, "evidence": cites}
