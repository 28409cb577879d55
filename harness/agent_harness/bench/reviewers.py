"""Four reviewers whose answers are recorded with the case: what the scorer has to tell apart. They go through the same
door as a model's answers, so that everything but the model is real.

careful      reads every change, finds the fault wherever it stands, checks each statement of the story
lazy         reads half of the changed files, the one or the other, and checks no statement
gullible     reads every change, sees no fault in what calls itself tidy, and believes each statement
fabricating  quotes what is not there and cites what it never saw
"""

import json
import shlex
from typing import Any

from agent_harness.bench.cases import BenchCase, Kind
from agent_harness.models.routes import Route
from agent_harness.types import Finish, Message, ModelRequest, Reply, ToolCall, Usage

STYLES = ("careful", "lazy", "gullible", "fabricating")


class RecordedReviewer:
    """A Transport that answers for one case in one style."""

    def __init__(self, style: str, case: BenchCase, _: Route | None = None) -> None:
        self._style, self._case = style, case
        self._changed = sorted(path for path, data in case.head.items() if case.base.get(path) != data)
        half = (len(self._changed) + 1) // 2
        parts = (self._changed[:half], self._changed[half:] or self._changed)
        self._read = parts[len(case.name) % 2] if style == "lazy" else self._changed

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """The next answer, by how many were given."""
        del timeout_s
        turn = sum(message.role == "assistant" for message in request.messages)
        name, arguments = ("bash", self._look()) if turn == 0 else ("submit", self._submit(turn))
        call = ToolCall(f"call_{turn}", name, json.dumps(arguments))
        size = sum(len(message.content) for message in request.messages)
        usage = Usage(size // 4, len(call.arguments) // 4)
        return Reply(Message("assistant", "", (call,)), Finish.TOOLS, usage, f"recorded/{self._style}")

    def _look(self) -> dict[str, str]:
        each = (f"diff -u /base/{one} {one}" for one in map(shlex.quote, self._read))
        return {"command": "; ".join([*each, "true"])}

    def _submit(self, turn: int) -> dict[str, Any]:
        bug, invents = self._case.bug, self._style == "fabricating"
        sees = bug is not None and bug.path in self._read and self._style in {"careful", "lazy"}
        findings: list[dict[str, Any]] = []
        if invents:
            findings = [_INVENTED | {"path": self._changed[0]}]
        elif bug and sees and turn == 1:
            body = f"The changed line does the opposite of what it did before ({bug.operator}); base had it right."
            quote = _quote(self._case.head[bug.path].decode(), bug.first, bug.last)
            findings = [_FOUND | {"body": body, "severity": bug.severity, "path": bug.path, "quote": quote}]
        out = {"verdict": "fail" if sees or invents else "pass", "confidence": 0.9, "findings": findings}
        claims = {"claims": self._claims()} if turn > 1 and not invents else {}
        return out | {"summary": "Read the change and judged each of its hunks."} | claims

    def _claims(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for line in self._case.story.splitlines() or [self._case.title]:
            said = line.removeprefix("- ")
            seen: dict[str, Any] = {"evidence": [1], "text": self._changed[0]}
            support = "supported"
            if self._style == "lazy":
                support, seen = "not_checked", {}
            elif self._style == "careful" and (said in self._case.false_claims or self._case.kind is Kind.BUG):
                support = "unsupported"
            out.append({"statement": said, "support": support, "why": "Compared with the diff.", **seen})
        return out


_FOUND = {"title": "Wrong outcome of a line", "kind": "correctness", "side": "head", "evidence": [1], "blocking": True}
_INVENTED = {
    "title": "Remote code execution through the parser",
    "body": "The new code evaluates what it is given; a test that was run printed the password file.",
    "severity": "P0",
    "kind": "security",
    "side": "head",
    "quote": "eval(request.args['code'])",
    "evidence": [1, 7],
}


def _quote(text: str, first: int, last: int) -> str:
    """The lines, with as many around them as make them stand in the file once."""
    lines = text.splitlines()
    for more in range(len(lines)):
        quote = "\n".join(lines[max(0, first - 1 - more) : last + more])
        if text.count(quote) == 1:
            return quote
    return text
