"""What is said of a plan's items counts when each is there once and its evidence can be followed.

Facts: those of `citing`, and `items`, the ids that were asked for."""

from collections import Counter
from typing import Any

from agent_harness.types import JSON
from agent_harness_roles.citing import IN_TREE, Facts, followed
from agent_harness_roles.evidence import Evidence


def validate(submission: JSON, facts: Facts, evidence: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Problems, or the assessment with what each citation led to."""
    counts = Counter(one["id"] for one in submission["items"])
    wanted = facts["items"]
    problems = [f"item {name} is not in the plan" for name in counts if name not in wanted]
    problems += [f"item {name} is there {counts[name]} times; once, please" for name in wanted if counts[name] != 1]
    if not evidence.looked:
        problems.append("no command of this run succeeded: look at the repository before you judge")
    items = []
    for one in submission["items"]:
        more, cites = followed(f"item {one['id']}", one["evidence"], facts, evidence)
        problems += more or _short_of(one)
        items.append({**one, "evidence": cites})
    return problems, {**submission, "items": items}


def _short_of(one: JSON) -> list[str]:
    in_tree = any(form in cite for cite in one["evidence"] for form in IN_TREE)
    if one["state"] in {"done", "partly"} and not in_tree:
        return [f"item {one['id']}: {one['state']} needs a path with quote, a test, or a commit that shows it"]
    if one["state"] in {"partly", "not_done"} and not one.get("missing", "").strip():
        return [f"item {one['id']}: say in `missing` what is still to be done"]
    if one["state"] == "not_done" and not one["evidence"]:
        return [f"item {one['id']}: not_done needs evidence too: the code as it is, or a search in vain"]
    return []
