"""One runner for every role: a folder, a loop, and exactly one end."""

import difflib
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agent_harness.errors import AuditError, HarnessError, ModelFault, UsageError
from agent_harness.ports import Budget, Environment, Loop, Task, Termination
from agent_harness.types import Ended, Message, Role, RoleResult, canonical, digest
from agent_harness.types.kinds import Kind
from agent_harness.types.text import clean
from agent_harness_roles import protocol
from agent_harness_roles.definition import Definition, Run, load
from agent_harness_roles.ends import ended_by
from agent_harness_roles.evidence import Shown
from agent_harness_roles.host import MAX_MALFORMED, RunHost, Stop
from agent_harness_roles.tools import Toolbox

_MOMENT = 1.0  # seconds: a call that the end of the run cut short is given up a little before it
_DETAIL = 1000  # characters of the one line that tells why a run ended


class Runner:
    """Port `RoleRunner`. `folders` holds one folder per role; the package's own when not given."""

    def __init__(self, loop: Loop, folders: Path | None = None) -> None:
        self._loop, self._folders = loop, folders or Path(__file__).parent
        self._loaded: dict[str, Definition] = {}

    def role(self, name: str) -> Role:
        """A role's definition. Raises UsageError naming the nearest when there is none."""
        return self._definition(name).role

    def run(
        self, role: Role, task: Task, environment: Environment, termination: Termination, budget: Budget
    ) -> RoleResult:
        """One bounded run, and one `role.ended` for it. Raises UsageError before it starts where the task does not
        fit the role's prompts, and lets AuditError and programming errors through; all else is in the result."""
        definition = self._definition(role.name)
        tools = Toolbox(role)
        system, user = definition.opening(role, task.variables)
        prompts = dict(role.prompt_digests) | {"tools": digest(canonical([asdict(spec) for spec in tools.specs]))}
        if environment.protocol == "text":
            taught = protocol.prompt(tools.specs)
            system, prompts["protocol"] = system + taught, digest(taught)
        opening = [Message(who, clean(environment.redact(text))) for who, text in (("system", system), ("user", user))]
        role_run = f"{role.name}-{uuid.uuid4().hex[:12]}"
        about = {"role": role.name, "role_run": role_run, "mode": role.mode.value, "limits": asdict(role.limits)}
        started = environment.recorder.event(Kind.ROLE_STARTED, {**about, "prompts": prompts})
        told = Shown(started.seq, "", opening[1].content, ok=True)
        before, began = budget.spent(), environment.clock.monotonic()
        run = Run(role, role_run, definition, task, told, environment, termination, budget, before, began)
        try:
            host = RunHost(run, tools)
            ended, detail = self._drive(host, run, opening)
        except AuditError:
            raise  # nothing can be recorded any more
        except BaseException as fault:  # the harness itself broke, or was interrupted
            ended = Ended.HARNESS_FAULT if isinstance(fault, Exception) else Ended.CANCELLED
            _ended(run, ended, f"{type(fault).__name__}: {fault}")
            raise
        return replace(_ended(run, ended, detail, host.submission), accepted=host.accepted)

    def _drive(self, host: RunHost, run: Run, opening: list[Message]) -> tuple[Ended, str]:
        try:
            over = self._loop.run(opening, host, MAX_MALFORMED)
        except Stop as stop:
            return stop.ended, stop.detail
        except AuditError:
            raise
        except HarnessError as fault:
            cancelled = run.termination.cancelled.is_set()
            if isinstance(fault, ModelFault) and run.budget.seconds_left() < _MOMENT and not cancelled:
                return Ended.LIMIT_SECONDS, f"the time for this run ended in a call: {fault.what}"
            return ended_by(fault, cancelled=cancelled), fault.line
        if host.stopped is not None:
            return host.stopped.ended, host.stopped.detail
        if over:
            return Ended.SUBMITTED, ""
        if host.reader.empty_in_a_row >= MAX_MALFORMED:
            return Ended.EMPTY, f"{MAX_MALFORMED} empty replies in a row"
        return Ended.MALFORMED, f"{MAX_MALFORMED} malformed replies in a row, the last: {host.reader.refused[0][1]}"

    def _definition(self, name: str) -> Definition:
        if name not in self._loaded:
            known = sorted(path.parent.name for path in self._folders.glob("*/role.toml"))
            if name not in known:
                near = difflib.get_close_matches(name, known, 1, 0)
                hint = f"did you mean {near[0]!r}? There are: {', '.join(known)}" if near else "there are no roles"
                raise UsageError(f"no role {name!r} in {self._folders}", next=hint)
            self._loaded[name] = load(self._folders / name)
        return self._loaded[name]


def _ended(run: Run, ended: Ended, detail: str, submission: dict[str, Any] | None = None) -> RoleResult:
    """Writes the end of a run."""
    detail = " ".join(clean(run.environment.redact(detail)).split())[:_DETAIL]
    kept = submission if ended is Ended.SUBMITTED else None
    spend = run.budget.spent() - run.before
    seconds = round(run.environment.clock.monotonic() - run.started, 3)
    data = {"role": run.role.name, "role_run": run.role_run, "ended": ended.value, "detail": detail}
    bodies = {"submission": canonical(kept)} if kept is not None else None
    run.environment.recorder.event(Kind.ROLE_ENDED, {**data, **asdict(spend), "seconds": seconds}, bodies)
    return RoleResult(run.role.name, run.role_run, ended, detail, kept, spend, seconds)
