"""Events as lines for people: the log's own, and the live ones of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agent_harness.cli.output import line, room, say, when
from agent_harness.types import Event, Finish, dollars
from agent_harness.types.kinds import Kind

SHOWN = 96
"""Characters of a command on a progress line."""


def event_line(event: Event) -> str:
    """One line of the log: number, time, run, kind and data."""
    run = event.run or event.item or "-"
    head = f"{event.seq:>6}  {when(event.at_ms)}  {run:<12} {event.kind:<20} "
    return f"{head}{line(pairs(event.data), room(len(head)))}".rstrip()


def pairs(data: Mapping[str, Any]) -> str:
    """Data as `key=value`, nested in brackets; digests short."""
    return " ".join(f"{key}={short(value)}" for key, value in data.items())


def short(value: Any) -> str:
    """One value on a line."""
    if isinstance(value, Mapping):
        return "{" + pairs(value) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(short(one) for one in value) + "]"
    text = str(value)
    return text[:19] if text.startswith("sha256:") else text


class Progress:
    """Prints a run as it goes: one line for each command, edit, gate and end, with turn, spend and time so far."""

    def __init__(self, write: Callable[[str], None] = say) -> None:
        self._write = write
        self._began = 0
        self._now = 0
        self._nanousd = 0
        self._role, self._steps, self._ceiling = "", 0, 0
        self._place, self._replayed = "run", False
        self._commands: dict[str, str] = {}
        self._handlers: dict[str, Callable[[Mapping[str, Any]], str]] = {
            Kind.RUN_STARTED: self._run_started,
            Kind.SANDBOX_READY: self._sandbox,
            Kind.SANDBOX_CLOSED: self._sandbox_closed,
            Kind.ROLE_STARTED: self._role_started,
            Kind.ROLE_ENDED: self._role_ended,
            Kind.MODEL_ASKED: self._asked,
            Kind.MODEL_ANSWERED: self._answered,
            Kind.MODEL_FAILED: self._failed,
            Kind.COMMAND_STARTED: self._command,
            Kind.COMMAND_ENDED: self._command_ended,
            Kind.EDIT_MADE: lambda d: f"edit {d['path']}",
            Kind.TOOL_REFUSED: lambda d: f"refused {d['tool']}: {d['reason']}",
            Kind.NETWORK_DENIED: lambda d: f"network refused {d['host']}:{d['port']} ({d['why']})",
            Kind.IMAGE_READY: lambda d: f"image {d['image'][-12:]} ready in {d['seconds']:.1f} s",
            Kind.CANDIDATE_CAPTURED: lambda d: f"candidate {d['tree'][:12]}: {d['files']} file(s) changed",
            Kind.GATE_JUDGED: self._judged,
            Kind.ANSWER_GIVEN: lambda d: f"answer {short(d['answer'])}",
            Kind.DELIVERY_LANDED: lambda d: f"delivered {d['commit'][:12]} on {d['target']}",
            Kind.DELIVERY_REFUSED: lambda d: f"delivery refused: {d['reason']}",
            Kind.RUN_ENDED: self._run_ended,
        }

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        self._now = event.at_ms
        handler = self._handlers.get(event.kind)
        try:
            text = handler(event.data) if handler else ""
            if text:
                self._write(f"[{self._where()}] {line(text, 240)}")
            if event.kind == Kind.ROLE_ENDED:
                self._role = ""
        except Exception as error:  # the event stands, and a run does not end for want of a line about it
            with suppress(Exception):
                self._write(f"[{event.kind}] could not be shown: {error!r}")

    def _where(self) -> str:
        seconds = max(0, self._now - self._began) // 1000
        turn = f"{self._role} {self._steps}/{self._ceiling}" if self._role else self._place
        return f"{turn} {dollars(self._nanousd)} {seconds // 60:02d}:{seconds % 60:02d}"

    def _run_started(self, data: Mapping[str, Any]) -> str:
        self._began, self._nanousd, self._role, self._place = self._now, 0, "", "run"
        self._replayed = data["mode"] == "replay"
        note = {
            "replay": "; the answers are recorded: the cost shown was theirs then, nothing is paid now",
            "record": "; the answers are being recorded",
        }
        asked = f"{data['purpose']} on" if data.get("purpose") else "review of what was made of"
        what = f"attempt {data['generation']} from" if data["generation"] else asked
        return f"{what} {data['base']}{note.get(data['mode'], '')}"

    def _run_ended(self, data: Mapping[str, Any]) -> str:
        return "" if data["outcome"] == "delivered" else f"{data['outcome']}: {data['reason']}"

    def _sandbox(self, data: Mapping[str, Any]) -> str:
        self._place = data["purpose"]
        return f"sandbox ready in {data['seconds']:.1f} s"

    def _sandbox_closed(self, _: Mapping[str, Any]) -> str:
        self._place = "run"
        return ""

    def _role_started(self, data: Mapping[str, Any]) -> str:
        self._role, self._steps, self._ceiling = data["role"], 0, data["limits"]["steps"]
        return "started" + (", read-only" if data["mode"] == "ro" else "")

    def _asked(self, data: Mapping[str, Any]) -> str:
        """Said once a role: a first answer may take a while, and nothing else tells who is waited for."""
        first = data["call"] == 1 and not self._steps and not self._replayed
        return f"asking {data['model']} by route {data['route']}" if first else ""

    def _role_ended(self, data: Mapping[str, Any]) -> str:
        return f"{data['ended']}: {data['detail']}" if data["detail"] else str(data["ended"])

    def _answered(self, data: Mapping[str, Any]) -> str:
        self._steps += 1
        self._nanousd += data.get("nanousd") or 0
        return "" if data["finish"] in {Finish.STOP, Finish.TOOLS} else f"the answer ended early: {data['finish']}"

    def _failed(self, data: Mapping[str, Any]) -> str:
        self._nanousd += data.get("nanousd") or 0
        return f"route {data['route']} failed ({data['fault']}): {data['why']}"

    def _command(self, data: Mapping[str, Any]) -> str:
        self._commands[data["where"]] = data["command"]
        return ""

    def _command_ended(self, data: Mapping[str, Any]) -> str:
        command = line(self._commands.pop(data["where"], "?"), SHOWN)
        end = f"exit {data['exit_code']}" if data["end"] == "exited" else str(data["end"]).replace("_", " ")
        return f"$ {command} … {end} ({data['seconds']:.1f} s)"

    def _judged(self, data: Mapping[str, Any]) -> str:
        reasons = f": {'; '.join(data['reasons'])}" if data["reasons"] else ""
        return f"gate {data['gate']}: {data['outcome']} ({data['seconds']:.1f} s){reasons}"
