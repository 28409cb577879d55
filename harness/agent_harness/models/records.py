"""What the log says of a model call: the intent before it, the answer or the fault after it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from agent_harness.errors import HarnessError, ModelFault
from agent_harness.models.pricing import Price
from agent_harness.models.routes import Route
from agent_harness.ports import Recorder
from agent_harness.types import JSON, Finish, Message, ModelRequest, Reply, Spend, ToolSpec, Usage, canonical, digest
from agent_harness.types.kinds import Kind


def reply_as_json(reply: Reply) -> dict[str, Any]:
    """A reply as plain data; `reply_from_json` reads it back exactly."""
    return {**asdict(reply), "message": reply.message.as_json()}


def reply_from_json(data: JSON) -> Reply:
    """A reply from what `reply_as_json` gave. Raises KeyError, TypeError or ValueError for anything else."""
    usage = Usage(**data["usage"])
    return Reply(Message.from_json(data["message"]), Finish(data["finish"]), usage, data["model"], data["nanousd"])


def tools_digest(tools: tuple[ToolSpec, ...]) -> str:
    """The digest of what the model is told of its tools."""
    return digest(canonical([asdict(tool) for tool in tools]))


class CallLog:
    """Writes the events of one client's calls. A message is stored once, in the event that first sends it."""

    def __init__(self, recorder: Recorder, redact: Callable[[str], str]) -> None:
        self._recorder, self._redact = recorder, redact
        self._calls: dict[str, int] = {}
        self._sent: dict[str, tuple[tuple[Message, ...], list[str]]] = {}
        self._stored: set[str] = set()

    def asked(self, route: Route, request: ModelRequest, worst: Spend) -> JSON:
        """The intent, durable before the call is made. Returns what ties the call's events together, in which `call`
        counts the attempts of one role, from 1.

        `history` counts the messages of the request; `messages` are the digests of those that are new since the
        role's last call, of all where the history does not go on from there. `request` is the digest of every
        message's digest, the tools' digest, the model and the output cap."""
        number = self._calls[request.role] = self._calls.get(request.role, 0) + 1
        call = {"role": request.role, "call": number, "route": route.name, "model": route.model}
        before, digests = self._sent.get(request.role, ((), []))
        if request.messages[: len(before)] != before:
            before, digests = (), []
        texts = [self._redact(canonical(message.as_json())) for message in request.messages[len(before) :]]
        new = [digest(text) for text in texts]
        told = {"model": route.model, "max_output_tokens": request.max_output_tokens}
        parts = {**told, "messages": digests + new, "tools": tools_digest(request.tools)}
        about = {"history": len(request.messages), "worst": asdict(worst), "request": digest(canonical(parts))}
        bodies = {
            f"message.{len(before) + index}": text
            for index, (text, name) in enumerate(zip(texts, new, strict=True))
            if name not in self._stored
        }
        self._recorder.event(Kind.MODEL_ASKED, {**call, **told, **about, "messages": new}, bodies)
        self._stored.update(new)
        self._sent[request.role] = (request.messages, digests + new)
        return call

    def answered(self, call: JSON, reply: Reply, bill: JSON, price: Price | None) -> None:
        """The answer. `bill` has `nanousd`, `prices` and `seconds`; the rates stand beside it as `price`."""
        data = {
            **call,
            "model": reply.model,
            "finish": reply.finish.value,
            "usage": asdict(reply.usage),
            **bill,
            **({"price": price.as_json()} if price else {}),
            **({"unpriced": True} if bill["prices"] == "unpriced" else {}),
        }
        self._recorder.event(Kind.MODEL_ANSWERED, data, {"reply": self._redact(canonical(reply_as_json(reply)))})

    def failed(self, call: JSON, fault: HarnessError, usage: Usage | None, spend: Spend, seconds: float) -> None:
        """The fault. `usage` is there only where the provider billed the call all the same, or may have."""
        data = {
            **call,
            "fault": fault.kind.value if isinstance(fault, ModelFault) else type(fault).__name__.lower(),
            "why": self._redact(fault.line),
            "seconds": seconds,
            "nanousd": spend.nanousd,
        }
        if usage is not None:
            data["usage"] = asdict(usage)
        if isinstance(fault, ModelFault) and fault.retry_after_s:
            data["retry_after_s"] = fault.retry_after_s
        self._recorder.event(Kind.MODEL_FAILED, data)
