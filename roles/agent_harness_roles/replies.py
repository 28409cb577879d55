"""Reads a provider's reply: the calls to carry out, or what is wrong with it, as messages the model gets back."""

import re
from collections.abc import Callable, Sequence

from agent_harness.ports import Turn
from agent_harness.types import Finish, Message, Reply, ToolCall
from agent_harness.types.text import clean
from agent_harness_roles import protocol
from agent_harness_roles.tools import Toolbox, kept

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_CUT = (
    "not run: your reply was cut at the output limit, so nothing in it can be trusted to be whole. "
    "Send a shorter reply, with one call, and write long files in several edits."
)
_EMPTY = "Your reply was empty. Call a tool: bash to look or run, submit when you are finished."
_NO_CALL = (
    "Your reply called no tool, so nothing was done. Text alone does nothing and ends nothing. "
    "Call a tool: bash to look or run, submit when you are finished."
)
_FENCE = " Open its block with three backticks and the tool's name (```bash), and close it with three backticks."
MAX_CALLS = 64
"""Calls that one reply may make: it is one step, and each is carried out and recorded."""
_OTHER = "not run: another call in the same reply was not valid; send this one again"


class ReplyReader:
    """Turns replies into turns. `empty_in_a_row` and `refused` tell why, when malformed replies ended the run."""

    def __init__(self, tools: Toolbox, redact: Callable[[str], str], *, text_protocol: bool) -> None:
        self._tools, self._redact, self._text = tools, redact, text_protocol
        self._ids: set[str] = set()
        self.empty_in_a_row = 0
        self.refused: tuple[tuple[str, str], ...] = ()
        """Tool (or `reply`) and reason of each refusal in the last reply."""

    def read(self, reply: Reply) -> Turn:
        """The turn of a reply. Nothing of a reply that was cut, or has one bad call, is carried out."""
        content = clean(self._redact(reply.message.content))
        if self._text:
            given = [("call", *block) for block in protocol.parse(content, self._tools.specs)]
        else:
            redact, made = self._redact, reply.message.tool_calls
            given = [(redact(call.id), redact(call.name), redact(call.arguments), "") for call in made]
        found = [self._call(*one) for one in given[: MAX_CALLS + 1]]  # what no reply may have is not read at all
        calls = tuple(call for call, _ in found)
        empty = not calls and not content.strip()
        self.empty_in_a_row = self.empty_in_a_row + 1 if empty else 0
        message = Message("assistant", "(empty reply)" if empty else content, () if self._text else calls)
        texts = self._wrong(reply.finish, [problem for _, problem in found], empty=empty)
        names = [call.name for call in calls] or ["reply"]
        self.refused = tuple((name, text) for name, text in zip(names, texts, strict=False) if text != _OTHER)
        return Turn(message, problems=self.results(calls, texts)) if texts else Turn(message, calls)

    def results(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> tuple[Message, ...]:
        """One result for each call, in order, as this route takes them: a message each, or one for all."""
        if not calls:
            return tuple(Message("user", text) for text in texts)
        if not self._text:
            return tuple(Message("tool", text, (), call.id) for call, text in zip(calls, texts, strict=True))
        heads = [f"Result of {call.name} ({n} of {len(calls)}):" for n, call in enumerate(calls, 1)]
        return (Message("user", "\n\n".join(f"{h}\n{t}" for h, t in zip(heads, texts, strict=True))),)

    def _wrong(self, finish: Finish, problems: Sequence[str], *, empty: bool) -> list[str]:
        if finish is Finish.LENGTH:
            return [_CUT] * max(1, len(problems))
        if len(problems) > MAX_CALLS:
            return [f"not run: more than {MAX_CALLS} calls in one reply; make at most {MAX_CALLS}"] * len(problems)
        if not problems:
            return [(_EMPTY if empty else _NO_CALL) + (_FENCE if self._text else "")]
        return [problem or _OTHER for problem in problems] if any(problems) else []

    def _call(self, wanted: str, said: str, arguments: str, problem: str) -> tuple[ToolCall, str]:
        value, wrong = self._tools.parse(said, arguments)
        name = _ODD.sub("_", said)[:64] or "unknown"
        return ToolCall(self._unique(wanted), name, kept(arguments, value)), problem or wrong

    def _unique(self, wanted: str) -> str:
        """An id no call of this run had: some models use one id for every call."""
        base = _ODD.sub("_", wanted)[:48] or "call"
        chosen, number = base, len(self._ids)
        while chosen in self._ids:
            number += 1
            chosen = f"{base}-{number}"
        self._ids.add(chosen)
        return chosen
