"""Recordings of a model's answers, and their replay without network or provider library.

One JSON object a line, the first a header. A line holds what was new in a request since the role's last call, and what
came back: a reply, or the fault. The file itself is the only state: a recorder reads what others wrote before it adds
a line, under a file lock, so several transports, threads and processes may record into one file. Items that were
recorded side by side may be replayed one after the other.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from agent_harness.errors import ConfigError, ModelFault, ModelFaultKind, ReplayDrift
from agent_harness.models.drift import first_difference
from agent_harness.models.records import reply_as_json, reply_from_json, tools_digest
from agent_harness.ports import Transport
from agent_harness.redact import scrub
from agent_harness.types import JSON, Message, ModelRequest, Reply, Usage, canonical

Redact: TypeAlias = Callable[[str], str]

FORMAT = "agent-harness recording"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of a role, as it was recorded: its whole history, new from `start` on, and what came back."""

    role: str
    call: int
    start: int
    history: tuple[Message, ...]
    tools: str
    answer: Reply | ModelFault


def _answer_as_json(answer: Reply | ModelFault) -> dict[str, Any]:
    if isinstance(answer, Reply):
        return {"reply": reply_as_json(answer)}
    named = {"kind": answer.kind.value, "what": answer.what, "why": answer.why, "next": answer.next}
    return {"fault": named | ({"usage": asdict(answer.usage)} if answer.usage else {})}


def _answer_from_json(data: JSON) -> Reply | ModelFault:
    """What came back, of a line. Raises KeyError, TypeError or ValueError."""
    if "reply" in data:
        return reply_from_json(data["reply"])
    said = data["fault"]
    usage = Usage(**said["usage"]) if "usage" in said else None
    return ModelFault(ModelFaultKind(said["kind"]), said["what"], why=said["why"], next=said["next"], usage=usage)


class Recording:
    """A recording file, read as far as it is written. Raises ConfigError naming the line that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exchanges: dict[str, list[Exchange]] = {}
        self._offset, self._line = 0, 0

    def read_on(self) -> None:
        """Read what was added since the last time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                for raw in file:
                    self._take(raw)
                    self._offset += len(raw)
        except OSError as error:
            raise ConfigError(f"the recording {self.path} cannot be read", why=error.strerror or str(error)) from None

    def add(self, request: ModelRequest, answer: Reply | ModelFault, redact: Redact) -> None:
        """Append one exchange, durable on return. Raises OSError."""
        messages = tuple(Message.from_json(scrub(message.as_json(), redact)) for message in request.messages)
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.read_on()
            if self._line == 0:
                file.write(_line({"format": FORMAT, "version": VERSION}))
            before, call = self._last(request.role)
            pairs = zip_longest(before, messages)
            start = next((at for at, (then, now) in enumerate(pairs) if then != now), len(before))
            data = {
                "role": request.role,
                "call": call + 1,
                "start": start,
                "messages": [message.as_json() for message in messages[start:]],
                "tools": tools_digest(request.tools),
                **_answer_as_json(answer),
            }
            file.write(_line(scrub(data, redact)))
            file.flush()
            os.fsync(file.fileno())

    def _last(self, role: str) -> tuple[tuple[Message, ...], int]:
        """The history of a role's last call, and which call that was."""
        known = self.exchanges.get(role)
        return (known[-1].history, known[-1].call) if known else ((), 0)

    def _take(self, raw: bytes) -> None:
        self._line += 1
        try:
            self._parse(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            where = f"line {self._line} of the recording {self.path} cannot be read"
            raise ConfigError(where, why=why, next="record the run again") from None

    def _parse(self, raw: bytes) -> None:
        if not raw.endswith(b"\n"):
            raise ValueError("the line is cut off")
        data = json.loads(raw)
        if self._line == 1:
            if data["format"] != FORMAT:
                raise ValueError(f"it is no {FORMAT}")
            if data["version"] != VERSION:
                raise ValueError(f"it is of version {data['version']!r}, and this program reads version {VERSION}")
            return
        role, call, start = data["role"], data["call"], data["start"]
        before, last = self._last(role)
        if call != last + 1:
            raise ValueError(f"call {last + 1} of the {role} should come, not {call}")
        history = (*before[:start], *map(Message.from_json, data["messages"]))
        exchange = Exchange(role, call, start, history, data["tools"], _answer_from_json(data))
        self.exchanges.setdefault(role, []).append(exchange)


def check_target(path: Path) -> Path:
    """A file to record into. Raises ConfigError where it is there and no recording, or cannot be written."""
    if path.exists():
        Recording(path).read_on()
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK):
        why = f"{place} may not be written to" if place.exists() else f"there is no folder {place}"
        raise ConfigError(f"the recording {path} cannot be written", why=why)
    return path


class RecordingTransport:
    """The port Transport that keeps all that another one answers, secrets taken out. Appends to a file that is there
    (ConfigError where that is no recording). What comes after the deadline is not kept: nobody waits for it then."""

    def __init__(self, inner: Transport, path: Path, redact: Redact) -> None:
        self._inner, self._redact = inner, redact
        self._recording = Recording(check_target(path))

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """One call. Raises what the inner transport raises; ModelFault where the recording cannot be written."""
        end = time.monotonic() + timeout_s
        answer: Reply | ModelFault
        try:
            answer = self._inner.send(request, timeout_s)
        except ModelFault as fault:
            answer = fault
        if time.monotonic() <= end:
            try:
                self._recording.add(request, answer, self._redact)
            except (OSError, ConfigError) as error:
                what = f"the recording {self._recording.path} cannot be written"
                raise ModelFault(ModelFaultKind.REFUSED, what, why=str(error), usage=answer.usage) from None
        elif isinstance(answer, Reply):
            raise ModelFault(ModelFaultKind.RETRY, "the answer came after the deadline", usage=answer.usage)
        return _given(answer)


class ReplayTransport:
    """The port Transport over a recording: for each role the next of its calls that fits, for every route the same.

    Raises ConfigError for a file that cannot be read whole; ReplayDrift when a call is not the one that was recorded.
    """

    def __init__(self, path: Path, redact: Redact = str) -> None:
        self._redact = redact
        self._recording = Recording(path)
        self._recording.read_on()
        if not self._recording.exchanges:
            raise ConfigError(f"the recording {path} holds no call", next="record the run again")
        self._lock = threading.Lock()
        self._left = {role: list(exchanges) for role, exchanges in self._recording.exchanges.items()}
        self._same: set[tuple[Message | None, Message | None]] = set()

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """The next recorded answer of the role, or its recorded fault."""
        del timeout_s
        with self._lock:
            exchange = self._next(request)
            self._left[request.role].remove(exchange)
        return _given(exchange.answer)

    def _next(self, request: ModelRequest) -> Exchange:
        """The first call not yet served that was this one; the drift from the nearest where there is none."""
        left, recorded = self._left.get(request.role, []), self._recording.exchanges.get(request.role, [])
        drifts: list[tuple[int, ReplayDrift]] = []
        for exchange in left:
            if (drift := self._drift_from(exchange, request)) is None:
                return exchange
            drifts.append(drift)
        if drifts:
            raise max(drifts, key=lambda drift: drift[0])[1]
        raise ReplayDrift(
            f"the recording has no call {len(recorded) + 1} of the {request.role}",
            why=f"{self._recording.path} holds {len(recorded)}",
            next="record the run again",
        )

    def _drift_from(self, exchange: Exchange, request: ModelRequest) -> tuple[int, ReplayDrift] | None:
        """The first message that is another one, with what to say of it."""
        where = f"call {exchange.call} of the {exchange.role} is not what was recorded"
        if exchange.tools != tools_digest(request.tools):
            return -1, _drift(f"{where}: the tools differ", exchange.tools, tools_digest(request.tools))
        for index, pair in enumerate(zip_longest(exchange.history, request.messages)):
            if pair[0] == pair[1] or pair in self._same:
                continue
            found = first_difference(_as_text(pair[0]), self._redact(_as_text(pair[1])))
            if found is not None:
                return index, _drift(f"{where}: message {index}, line {found[0]}", found[1], found[2])
            self._same.add(pair)
        return None


def _given(answer: Reply | ModelFault) -> Reply:
    if isinstance(answer, ModelFault):
        raise answer
    return answer


def _drift(what: str, recorded: str, now: str) -> ReplayDrift:
    return ReplayDrift(what, why=f"recorded {recorded}, now {now}", next="record the run again, or undo the change")


def _as_text(message: Message | None) -> str:
    """A message as lines: the first names its role, then its content, then its calls."""
    if message is None:
        return "(no message)"
    calls = [f"call {call.id} {call.name} {call.arguments}" for call in message.tool_calls]
    answers = f" to {message.tool_call_id}" if message.tool_call_id else ""
    return "\n".join([f"{message.role}{answers}:", message.content, *calls])


def _line(data: JSON) -> bytes:
    return canonical(data).encode() + b"\n"
