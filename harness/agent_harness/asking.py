"""Questions that a read-only role answers from one commit: surveys, assessments, and items that end in an answer.

The role's validator follows every citation by the facts given here. What did not validate is never shown as an answer:
a report by code says so instead.
"""

import json
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from agent_harness.config import Config
from agent_harness.ends import End, of_role_run
from agent_harness.errors import AuditError, Cancelled, Exit, HarnessError, InfrastructureError, UsageError
from agent_harness.guard.source import pieces
from agent_harness.parts import Parts, Work
from agent_harness.plans import Plan, PlanItem, one_line, tidy
from agent_harness.ports import Recorder, Task, Termination
from agent_harness.queue.adding import check_cycles
from agent_harness.stage import Stage
from agent_harness.types import JSON, Check, CheckKind, Deliverable, Item, RoleResult, Settlement
from agent_harness.types.kinds import Kind
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import shallow_ends

PLAN_SHOWN = 128 << 10
"""Characters of a plan that go into a prompt; a longer one is refused, never cut."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a role is asked, of which commit (None: the project's base), and what its validator knows beside."""

    role: str
    variables: Mapping[str, str]
    base: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """How a question ended. Without a `result` there is no answer, and the rest is what code can tell of the run:
    `reason`, the commands that were run, and why submissions were refused."""

    run: str
    role: str
    base: str
    outcome: str
    exit: Exit
    reason: str
    result: JSON | None
    commands: tuple[str, ...]
    refused: tuple[str, ...]
    receipt: JSON


def ask(parts: Parts, work: Work, question: Question, stop: threading.Event) -> Asked:
    """Ask, without a queue. Raises UsageError for a base that is not there, and AuditError."""
    recorder = parts.audit.recorder("", work.run)
    base = parts.repository.fetch(parts.source, question.base or parts.config.project.base)
    parts.opened(work, recorder, base, purpose=question.role)
    result, end = None, End(Settlement.DONE, Exit.OK, "answered")
    try:
        stage = parts.stage(work, recorder, stop)
        try:
            stage.prepare(base)
            result = study(parts, work, (stage, recorder, stop), base, question)
        finally:
            stage.close()
        end = of_role_run(result, None, stopped=stop.is_set()) or end
    except AuditError:
        raise
    except HarnessError as error:
        outcome = "interrupted" if isinstance(error, Cancelled) else "inconclusive"
        end = End(Settlement.DEFERRED, error.exit, outcome, error.line)
    events, reason = parts.audit.events(run=work.run), parts.redact(end.reason)
    receipt = parts.receipt(work.run, recorder)
    recorder.event(Kind.RUN_ENDED, {"outcome": end.outcome, "exit": int(end.exit), "reason": reason})
    return Asked(
        run=work.run,
        role=question.role,
        base=base,
        outcome=end.outcome,
        exit=end.exit,
        reason=reason,
        result=result.submission if result and end.exit is Exit.OK else None,
        commands=tuple(one.data["command"] for one in events if one.kind == Kind.COMMAND_STARTED),
        refused=tuple(one.data["reason"] for one in events if one.kind == Kind.TOOL_REFUSED),
        receipt=json.loads(receipt),
    )


def study(
    parts: Parts, work: Work, at: tuple[Stage, Recorder, threading.Event], base: str, question: Question
) -> RoleResult:
    """The role's run on a read-only checkout of the base. Raises InfrastructureError where its tree did not stay."""
    (stage, recorder, stop), role, began = at, parts.role(question.role), parts.clock.monotonic()
    with stage.study(base, role.name) as (sandbox, unchanged):
        seconds = round(parts.clock.monotonic() - began, 3)
        recorder.event(Kind.WORKSPACE_READY, {"base": base, "start": base, "seconds": seconds})
        variables = dict(question.variables) | {"base": base, "history": _history(parts.repository, base)}
        task = Task(
            {name: parts.redact(text) for name, text in variables.items()}, {**_facts(parts, base), **question.facts}
        )
        environment = parts.environment(role.name, recorder, stop)(sandbox)
        result = parts.runner.run(role, task, environment, Termination(stop), parts.budget(work, role))
        if not unchanged():
            raise InfrastructureError("the tree changed while it was looked at, so what was said of it is void")
    return result


def _history(repository: HarnessRepository, base: str) -> str:
    commits = repository.git.run("rev-list", base).decode("ascii").split()
    if shallow_ends(repository.git).intersection(commits):
        return f"its newest {len(commits)} commits; what came before is not here, as it was cut in the source"
    return f"all {len(commits)} commits"


def _facts(parts: Parts, base: str) -> dict[str, Any]:
    """What validators may look up: in the base, and nowhere else."""
    repository = parts.repository
    files = {one.path.decode("utf-8", "surrogateescape") for one in repository.paths(base)}
    there = {str(above) for one in files for above in (PurePosixPath(one), *PurePosixPath(one).parents)}

    def commit(name: str) -> str:
        found = repository.git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        id = found.out.decode("ascii").strip()
        if found.code or not re.fullmatch("[0-9a-f]{7,40}", name) or not id.startswith(name):
            return ""
        if repository.git.attempt("merge-base", "--is-ancestor", id, base).code:
            return ""
        subject = repository.git.run("log", "-1", "--no-show-signature", "--format=%s", id)
        return f"{id[:12]} {one_line(tidy(subject.decode('utf-8', 'replace')))}"

    def absent(text: str) -> bool:
        return repository.git.attempt("grep", "-q", "-I", "-F", "-e", text, base, "--").code == 1

    return {
        "absent": absent,
        "read": lambda path: parts.read_small(base, path),
        "commit": commit,
        "exists": lambda path: str(PurePosixPath(path)) in there,
        "parses": lambda command: not any(piece.root.has_error for piece in pieces(command)),
        "acyclic": check_cycles,
    }


# --- what is asked ------------------------------------------------------------------------------------------


def of_item(item: Item) -> Question:
    """The question that an item is."""
    return Question("answerer", {"title": item.title, "brief": item.brief or item.title, "feedback": item.feedback})


def of_objective(objective: str, base: str | None, config: Config) -> Question:
    """How an objective is reached."""
    checks = "\n".join(check.command for check in config.project.checks) or "nothing yet"
    return Question("surveyor", {"objective": objective, "checks": checks}, base)


def of_plan(items: Sequence[PlanItem], base: str | None) -> Question:
    """What of a plan is done. Raises UsageError for one that is too long, or of several repositories."""
    ids = [one.id for one in items]
    if len(set(ids)) < len(ids):
        raise UsageError("items of this plan share an id", next="assess the issues of one repository at a time")
    parts = [
        f"## {one.id}: {one.title} (ticked: {'yes' if one.done else 'no'})\n{one.brief}\n"
        + "".join(f"Done when: {text}\n" for text in one.acceptance)
        for one in items
    ]
    if (size := sum(map(len, parts))) > PLAN_SHOWN:
        raise UsageError(f"the plan has {size} characters", why=f"{PLAN_SHOWN} is the most", next="assess it in parts")
    return Question("assessor", {"items": "\n".join(parts), "ids": ", ".join(ids)}, base, {"items": tuple(ids)})


def plan_of(survey: JSON) -> Plan:
    """A validated survey as a plan."""
    return Plan(
        goal=_line(survey["goal"]),
        context=tidy(survey.get("context", "")).strip(),
        items=tuple(map(_item, survey["items"])),
        assumptions=tuple(map(_line, survey["assumptions"])),
        questions=tuple(map(_line, survey["questions"])),
        evidence=_cited(survey["evidence"]),
    )


def _item(one: JSON) -> PlanItem:
    return PlanItem(
        one["id"],
        _line(one["title"]),
        tidy(one["brief"]).strip(),
        deliverable=Deliverable(one.get("deliverable", Deliverable.CHANGE)),
        acceptance=tuple(map(_line, one["acceptance"])),
        checks=tuple(Check(tidy(c["command"]).strip(), CheckKind(c["kind"])) for c in one.get("checks", ())),
        depends_on=tuple(one.get("depends_on", ())),
        risk=_line(f"{one['risk']}: {one['risk_why']}"),
        paths=tuple(tidy(entry["path"]) + " (new)" * entry.get("new", False) for entry in one["paths"]),
        evidence=_cited(one["evidence"]),
    )


def _cited(evidence: Iterable[JSON]) -> tuple[str, ...]:
    return tuple(_line(f"{one['says']} ({one['shown']})") for one in evidence)


def _line(text: str) -> str:
    return one_line(tidy(text))


def roles_of(items: Collection[Item], *, review: bool) -> tuple[str, ...]:
    """The roles that these items need."""
    kinds = {one.deliverable for one in items}
    change = ("implementer", "reviewer") if review else ("implementer",)
    answer = ("answerer",) if Deliverable.ANSWER in kinds else ()
    return answer if kinds == {Deliverable.ANSWER} else change + answer
