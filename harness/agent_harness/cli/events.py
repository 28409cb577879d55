"""Events as lines for people: the log's own, and the live ones of a run."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agent_harness.cli.output import line, room, say, when
from agent_harness.types import JSON, Event, Finish, dollars
from agent_harness.types.kinds import Kind

SHOWN = 96
"""Characters of a command on a progress line."""


def event_line(event: Event) -> str:
    """One line of the log: number, time, run, kind and data."""
    run = event.run or event.item or "-"
    head = f"{event.seq:>6}  {when(event.at_ms)}  {run:<12} {event.kind:<20} "
    return f"{head}{line(pairs(event.data), room(len(head)))}".rstrip()


def pairs(data: JSON) -> str:
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


TOLD: dict[str, str] = {
    Kind.EDIT_MADE: "edit {path}",
    Kind.TOOL_REFUSED: "refused {tool}: {reason}",
    Kind.NETWORK_DENIED: "network refused {host}:{port} ({why})",
    Kind.CANDIDATE_CAPTURED: "candidate {tree:.12}: {files} file(s) changed",
    Kind.DELIVERY_LANDED: "delivered {commit:.12} on {target}",
    Kind.DELIVERY_REFUSED: "delivery refused: {reason}",
    Kind.MODEL_FAILED: "route {route} failed ({fault}): {why}",
    Kind.IMAGE_READY: "image ready in {seconds:.1f} s",
    Kind.ANSWER_GIVEN: "answer {answer:.19}",
    Kind.ROLE_ENDED: "{ended}",  # why, the end of the gate or of the run says
}
"""Events whose line needs nothing but their own data."""


class Progress:
    """Prints a run as it goes: one line for each command, edit, gate and end, with turn, spend and time so far. The
    event `a.b` is told by `_on_a_b`, or by `TOLD`."""

    def __init__(self, write: Callable[[str], None] = say) -> None:
        self._write = write
        self._began = self._now = self._nanousd = self._steps = self._ceiling = 0
        self._role = ""
        self._place, self._replayed = "run", False
        self._commands: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        self._now = event.at_ms
        try:
            if event.kind in {Kind.MODEL_ANSWERED, Kind.MODEL_FAILED}:
                self._nanousd += event.data.get("nanousd") or 0
            handler = getattr(self, "_on_" + event.kind.replace(".", "_"), None)
            text = handler(event.data) if handler else TOLD.get(event.kind, "").format_map(event.data)
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

    def _on_run_started(self, data: JSON) -> str:
        self._began, self._nanousd, self._role, self._place = self._now, 0, "", "run"
        self._replayed = data["mode"] == "replay"
        note = {
            "replay": "; the answers are recorded: the cost shown was theirs then, nothing is paid now",
            "record": "; the answers are being recorded",
        }
        asked = f"{data['purpose']} on" if data.get("purpose") else "review of the change to"
        what = f"attempt {data['generation']} from" if data["generation"] else asked
        return f"{what} {data['base']}{note.get(data['mode'], '')}"

    def _on_run_ended(self, data: JSON) -> str:
        return "" if data["outcome"] == "delivered" else f"{data['outcome']}: {data['reason']}"

    def _on_sandbox_ready(self, data: JSON) -> str:
        self._place = data["purpose"]
        return f"sandbox ready in {data['seconds']:.1f} s"

    def _on_sandbox_closed(self, _: JSON) -> str:
        self._place = "run"
        return ""

    def _on_role_started(self, data: JSON) -> str:
        self._role, self._steps, self._ceiling = data["role"], 0, data["limits"]["steps"]
        return "started" + (", read-only" if data["mode"] == "ro" else "")

    def _on_model_asked(self, data: JSON) -> str:
        """Said once a role: a first answer may take a while, and nothing else tells who is waited for."""
        first = data["call"] == 1 and not self._steps and not self._replayed
        return f"asking {data['model']} by route {data['route']}" if first else ""

    def _on_model_answered(self, data: JSON) -> str:
        self._steps += 1
        return "" if data["finish"] in {Finish.STOP, Finish.TOOLS} else f"the answer ended early: {data['finish']}"

    def _on_command_started(self, data: JSON) -> str:
        self._commands[data["where"]] = data["command"]
        return ""

    def _on_command_ended(self, data: JSON) -> str:
        command = line(self._commands.pop(data["where"], "?"), SHOWN)
        end = f"exit {data['exit_code']}" if data["end"] == "exited" else str(data["end"]).replace("_", " ")
        return f"$ {command} … {end} ({data['seconds']:.1f} s)"

    def _on_gate_judged(self, data: JSON) -> str:
        reasons = f": {'; '.join(data['reasons'])}" if data["reasons"] else ""
        return f"gate {data['gate']}: {data['outcome']} ({data['seconds']:.1f} s){reasons}"
