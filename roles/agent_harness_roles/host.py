"""One role run's side of the loop: asks the model, carries out its calls, and knows why the run ended."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from posixpath import join, normpath
from typing import Any

from agent_harness.ports import Turn
from agent_harness.types import Command, Ended, Event, Finish, Message, Mode, ModelRequest, ToolCall, canonical
from agent_harness.types.kinds import Kind
from agent_harness.types.text import clean
from agent_harness_roles import edits
from agent_harness_roles.definition import Run
from agent_harness_roles.elision import LEAST, Elision
from agent_harness_roles.evidence import Evidence, Shown
from agent_harness_roles.history import HistoryCheck
from agent_harness_roles.loopguard import STOP, WARN, LoopGuard
from agent_harness_roles.observe import Seen, seen
from agent_harness_roles.replies import ReplyReader
from agent_harness_roles.tools import Toolbox

MAX_MALFORMED = 3
"""Malformed (or empty) replies in a row that end a run, and refused submissions before each that is accepted."""
WORKSPACE = "/workspace"
_EDIT_LIMIT = 4 << 20
_STEPS_TOLD = 3
_NOT_RUN = "not run: the run ended"
_NO_FILE = "there is no such file (to create it, give `content`)"
_ALONE = "call submit alone in a reply: you have not read yet what its other calls gave"


class Stop(Exception):
    """The run ends here, for a reason other than a submission."""

    def __init__(self, ended: Ended, detail: str) -> None:
        self.ended, self.detail = ended, detail
        super().__init__(detail)


class RunHost:
    """Port `LoopHost`. After the loop: `submission`, or `stopped` when a call ended the run otherwise."""

    def __init__(self, run: Run, tools: Toolbox) -> None:
        self._run = run
        text = run.environment.protocol == "text"
        self._specs = () if text else tools.specs
        self._history, self._guard, self._evidence = HistoryCheck(), LoopGuard(), Evidence(run.opening)
        self._elision = Elision(run.environment.history_chars)
        self._follow_up, self._steps_told, self._alone = run.definition.follow_up(run.task.variables), False, True
        self._tools: dict[str, Callable[[dict[str, Any]], str | Seen]] = {
            "bash": self._bash,
            "edit": self._edit,
            "submit": self._submit,
        }
        self.reader = ReplyReader(tools, run.environment.redact, text_protocol=text)
        self.submission: dict[str, Any] | None = None
        self.stopped: Stop | None = None

    def ask(self, history: Sequence[Message]) -> Turn:
        """The next turn. Raises Stop, and whatever the model raises, when there is none."""
        self._check_open()
        self._history.check(history)
        role = self._run.role
        request = ModelRequest(role.name, self._elision.view(history), self._specs, role.limits.tokens)
        reply = self._run.environment.model.complete(request, self._run.budget)
        if reply.finish is Finish.FILTERED:
            raise Stop(Ended.REFUSED, "the provider filtered the reply, or the model refused")
        turn = self.reader.read(reply)
        for tool, reason in self.reader.refused:
            self._refused(tool, reason)
        return turn

    def act(self, turn: Turn) -> tuple[Sequence[Message], bool]:
        """One result per call, in order. What ends the run is kept, and the calls after it are told so."""
        self._alone = len(turn.calls) == 1 or self._run.role.mode is Mode.RW  # who cites has to have read first
        texts, briefs, labels = map(list, zip(*map(self._carry_out, turn.calls), strict=True))
        notes = "" if self._over else self._notes(turn.calls, texts)  # by the texts alone: no two labels are the same
        texts[-1], briefs[-1] = texts[-1] + notes, briefs[-1] + notes
        results, brief = (
            self.reader.results(turn.calls, [label + text for label, text in zip(labels, one, strict=True)])
            for one in (texts, briefs)
        )
        self._elision.note(results, brief)
        return results, self._over

    @property
    def accepted(self) -> dict[str, Any] | None:
        """The last submission that was accepted."""
        return self._evidence.accepted[-1] if self._evidence.accepted else None

    @property
    def _over(self) -> bool:
        return self.submission is not None or self.stopped is not None

    def _carry_out(self, call: ToolCall) -> tuple[str, str, str]:
        """What the model is shown, what may stand for that later, and the number by which a read-only role cites it.
        That is counted in the run, so that the same run reads the same when it is recorded and replayed; the log's own
        number stands in the evidence."""
        told: str | Seen = _NOT_RUN
        if not self._over:
            try:
                told = self._tools[call.name](json.loads(call.arguments))
            except Stop as stop:
                self.stopped = stop
        if isinstance(told, str):
            return told, told, ""
        label = f"[event {len(self._evidence.commands)}]\n" if self._run.role.mode is Mode.RO else ""
        return told.text, told.brief(_action(call)), label

    def _notes(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> str:
        """What the harness has to say below the last result."""
        actions = [_action(call) for call in calls]
        notes = ""
        repeats = self._guard.saw(actions, texts)
        if repeats >= STOP:
            self.stopped = Stop(Ended.LOOP, f"the same turn came {repeats} times in a row: {actions[0][:200]}")
            return notes
        if repeats >= WARN:
            notes += (
                f"\n\n[harness] You have done this {repeats} times in a row with the same result. Do something else; "
                f"at {STOP} times the run is ended."
            )
        left = self._run.role.limits.steps - (self._run.budget.spent() - self._run.before).steps
        if left <= _STEPS_TOLD and not self._steps_told:
            self._steps_told = True
            notes += f"\n\n[harness] {left} replies are left. Finish and call submit: without it the run is incomplete."
        return notes

    def _check_open(self) -> None:
        if self._run.termination.cancelled.is_set():
            raise Stop(Ended.CANCELLED, "the run was cancelled")
        if self._run.budget.seconds_left() <= 0:
            raise Stop(Ended.LIMIT_SECONDS, "the time for this run is over")

    def _bash(self, arguments: dict[str, Any]) -> str | Seen:
        self._check_open()
        environment, role = self._run.environment, self._run.role
        script = arguments["command"]
        if refusal := self._clean(environment.screen(script)):
            self._refused("bash", refusal)
            return refusal
        most = min(role.command_timeout_s, self._run.budget.seconds_left())
        timeout_s = float(min(arguments.get("timeout_s", most), most))
        self._record(Kind.COMMAND_STARTED, command=script)
        result = environment.sandbox.execute(Command(script, timeout_s, keep=environment.observation_bytes, save=LEAST))
        observed = seen(result, timeout_s, environment.redact, environment.observation_bytes)
        how = {"end": result.end.value, "exit_code": result.exit_code, "seconds": round(result.seconds, 3)}
        event = self._record(Kind.COMMAND_ENDED, {"output": observed.output}, bytes=result.total_bytes, **how)
        self._evidence.commands.append(Shown(event.seq, script, observed.output, result.ok))
        return observed

    def _edit(self, arguments: dict[str, Any]) -> str:
        self._check_open()
        path = normpath(join(WORKSPACE, arguments["path"]))
        shown = path.removeprefix(WORKSPACE + "/")
        try:
            if shown == path:
                raise edits.EditRefusedError(f"it is outside {WORKSPACE}")
            made = self._write(path, arguments)
        except (OSError, ValueError) as fault:
            why = _NO_FILE if isinstance(fault, FileNotFoundError) else fault
            reason = f"{shown}: {why}; nothing was changed"
            self._refused("edit", reason)
            return self._clean(f"refused: {reason}")
        self._evidence.edited.append(shown)
        self._record(Kind.EDIT_MADE, path=self._clean(shown), edits=made)
        return self._clean(f"{shown}: " + (f"{made} edits applied" if made > 1 else "done"))

    def _write(self, path: str, arguments: dict[str, Any]) -> int:
        sandbox = self._run.environment.sandbox
        if "content" in arguments:
            with suppress(FileNotFoundError):
                if sandbox.read_file(path, _EDIT_LIMIT):
                    raise edits.EditRefusedError("the file exists; change it with `edits`")
            sandbox.write_file(path, arguments["content"].encode())
            return 1
        sandbox.write_file(path, edits.apply(sandbox.read_file(path, _EDIT_LIMIT), arguments["edits"]))
        return len(arguments["edits"])

    def _submit(self, arguments: dict[str, Any]) -> str:
        evidence = self._evidence
        if not self._alone:
            return self._not_submitted([_ALONE])
        problems, result = self._run.definition.validate(arguments, self._run.task.facts, evidence)
        if problems:
            return self._not_submitted(problems)
        evidence.accepted.append(result)
        if self._follow_up:  # each answer is kept, so that what the story did to the verdict is data
            self._record(Kind.ROLE_SUBMITTED, {"submission": canonical(result)}, round=len(evidence.accepted))
        if self._follow_up and len(evidence.accepted) == 1:
            evidence.refused = 0
            return self._clean(self._follow_up)
        self.submission = result
        return "accepted"

    def _not_submitted(self, problems: Sequence[str]) -> str:
        self._evidence.refused += 1
        reason = self._clean("; ".join(problems))
        self._refused("submit", reason)
        if self._evidence.refused >= MAX_MALFORMED:
            raise Stop(Ended.MALFORMED, f"the submission was refused {MAX_MALFORMED} times, at last: {reason}")
        return self._clean("refused, nothing was submitted:\n" + "\n".join(f"- {problem}" for problem in problems))

    def _clean(self, text: str) -> str:
        return clean(self._run.environment.redact(text))

    def _refused(self, tool: str, reason: str) -> None:
        self._record(Kind.TOOL_REFUSED, tool=tool, reason=reason)

    def _record(self, kind: str, bodies: Mapping[str, str] | None = None, **data: object) -> Event:
        return self._run.environment.recorder.event(kind, {"where": self._run.role_run, **data}, bodies)


def _action(call: ToolCall) -> str:
    """A call as the loop guard compares it: the script of a command, else name and arguments."""
    if call.name == "bash":
        return str(json.loads(call.arguments)["command"])
    return f"{call.name} {call.arguments}"
