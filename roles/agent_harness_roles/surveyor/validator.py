"""A plan counts when code can follow what it says of the repository and queue what it proposes.

Facts: those of `citing`, and
`exists`    whether a path is a file or folder of the commit
`parses`    whether a command is one that a shell can read
`acyclic`   raises UsageError, with the path, for items that would wait for each other
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agent_harness.errors import UsageError
from agent_harness.types import JSON
from agent_harness_roles.citing import Facts, followed
from agent_harness_roles.evidence import Evidence


def validate(submission: JSON, facts: Facts, evidence: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Problems, or the plan with what each citation led to."""
    problems, cites = followed("evidence", submission["evidence"], facts, evidence)
    if not evidence.looked:
        problems.append("no command of this run succeeded: look at the repository before you plan")
    problems += _order(submission["items"], facts)
    items = []
    for one in submission["items"]:
        more, own = followed(f"item {one['id']}", one["evidence"], facts, evidence)
        problems += [*more, *_parts(one, facts)]
        items.append({**one, "evidence": own})
    return problems, {**submission, "evidence": cites, "items": items}


def _order(items: list[JSON], facts: Facts) -> Iterator[str]:
    counts = Counter(one["id"] for one in items)
    yield from (f"the id {name} is used {count} times" for name, count in counts.items() if count > 1)
    needs = {one["id"]: one.get("depends_on", ()) for one in items}
    for name, others in needs.items():
        yield from (f"item {name} depends on {other!r}, which is no item" for other in others if other not in needs)
    try:
        facts["acyclic"]({name: [one for one in others if one in needs] for name, others in needs.items()})
    except UsageError as error:
        yield error.line


def _parts(one: JSON, facts: Facts) -> Iterator[str]:
    for check in one.get("checks", ()):
        if "\n" in check["command"].strip() or not facts["parses"](check["command"]):
            yield f"item {one['id']}: the check {check['command']!r} is not one line that a shell can read"
    for entry in one["paths"]:
        path, new = entry["path"], entry.get("new", False)
        if path.startswith("/") or ".." in path.split("/"):
            yield f"item {one['id']}: the path {path} must be relative to the repository, and inside"
        elif facts["exists"](path) == new:
            said = "is there already; leave `new` out" if new else "is not there; check it, or say `new`: true"
            yield f"item {one['id']}: the path {path} {said}"
