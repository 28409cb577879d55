"""The port Transport over litellm, which carries every provider's wire format.

litellm is imported late: it takes seconds, and would fetch a price map over the network if it were let. Its retries,
its prices and its talk on stdout are switched off; deadlines, retries and prices are the harness's own.
"""

import json
import logging
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from types import SimpleNamespace
from typing import Any

from agent_harness.errors import CredentialError, ModelFault, ModelFaultKind
from agent_harness.types import NANO, Finish, Message, ModelRequest, Reply, ToolCall, Usage
from agent_harness_adapters.dialects import Dialect, specific
from agent_harness_adapters.provider_faults import Failure, classify, clean, retry_after
from agent_harness_adapters.wire import Exchange, transport, watch

_NO_KEY = "none"
"""Sent to an endpoint that asks for no key: the client library wants some text."""

_PYTHON_ERRORS = (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, AssertionError)
"""What litellm lets through for answers that it cannot read."""

_FINISHES: Mapping[str, Finish] = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
    "refusal": Finish.FILTERED,
    "safety": Finish.FILTERED,
}

_REDIRECTS, _ERRORS = 300, 400
_SIGNATURE = "__thought__"
"""litellm hides a thought's signature in the id of a call; it goes back beside it, not in it."""

_SHOWN, _CODE = 1 << 16, 100
"""Characters of a provider's error, and of its code, up to which they are read: secrets are looked for before a cut."""

_GAVE_UP = {504, 524}
"""Statuses of a gateway that waited no longer: what it asked may go on, and be billed."""

_PREFIXES = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Timeout): |\w+Exception - |LiteLLM: )*")

_MOST_TOKENS, _MOST_USD = 1 << 32, 1_000_000
"""More than one call can use or cost; a figure beyond is not believed."""

_BY_NAME = {
    "ContextWindowExceededError": "context_length_exceeded",
    "ContentPolicyViolationError": "content_policy_violation",
}
"""What litellm found out itself and says by the class of its error."""

_NEXT: Mapping[ModelFaultKind, str] = {
    ModelFaultKind.CAP: "raise the account's limit or add a second route",
    ModelFaultKind.REFUSED: "check the route's model and base_url",
    ModelFaultKind.CONTEXT: "use a route with a longer context, or split the item",
}


class LitellmTransport:
    """One route over litellm. The key is read from the environment for each call and kept nowhere."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key_env: str | None = None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._model, self._base_url, self._key_name, self._redact = model, base_url, api_key_env, redact
        self._dialect = Dialect(model, base_url)

    @staticmethod
    def preload() -> threading.Thread:
        """Start importing litellm beside other work; the first call waits for what is left of it."""
        thread = threading.Thread(target=_litellm, name="import-litellm", daemon=True)
        thread.start()
        return thread

    def send(self, request: ModelRequest, timeout_s: float) -> Reply:
        """One call, tried once. Raises CredentialError where the key's variable is not set, else ModelFault."""
        key, end = self._key(), time.monotonic() + timeout_s
        litellm, seen = _litellm(), watch()
        if time.monotonic() >= end:  # nobody waits any more: what was not sent by now never is
            what = f"the client library was not loaded within {timeout_s:.0f} s"
            raise ModelFault(ModelFaultKind.RETRY, what, next="raise the route's timeout_s", usage=Usage())
        fault: ModelFault
        try:
            answer = litellm.completion(**self._arguments(request, key, timeout_s, litellm))
            heard = [found for choice in answer.choices or () if (found := getattr(choice, "message", None))]
            reply = _reply(answer, heard, request, self._model, seen)
            self._dialect.keep(len(request.messages), reply, heard)
        except _vendor_errors() as error:
            fault = self._fault(_failure(error, seen), key)
            fault.usage = _billed(seen) if seen.reached else Usage()
        else:
            return reply
        raise fault  # outside the handler, so that no vendor error with a key in it hangs on as context

    def _key(self) -> str | None:
        if not self._key_name:
            return _NO_KEY if self._base_url else None
        key = os.environ.get(self._key_name, "").strip()
        if not key:
            raise CredentialError(
                f"the environment variable {self._key_name} is not set",
                why=f"it holds the key for {self._model}",
                next=f"export {self._key_name}=...",
            )
        return key

    def _arguments(self, request: ModelRequest, key: str | None, timeout_s: float, litellm: Any) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": self._dialect.said([_message(message) for message in request.messages]),
            "tools": [{"type": "function", "function": asdict(tool)} for tool in request.tools] or None,
            "max_tokens": request.max_output_tokens,
            "timeout": timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": True,
            "base_url": self._base_url,
            "api_key": key,
            **self._dialect.switches(request, litellm),
        }

    def _fault(self, failure: Failure, key: str | None) -> ModelFault:
        kind = classify(failure)
        names = {0: "no answer", 200: "an error in an answer with status 200"}
        where = names.get(failure.status, f"status {failure.status}")
        codes = f" ({self._tidy(', '.join(failure.codes), key)})" if failure.codes else ""
        again = retry_after(failure, time.time())
        if kind is ModelFaultKind.AUTH:
            what, hint = f"the provider refused the key: {where}{codes}", f"check {self._key_name or 'the key'}"
            return ModelFault(kind, what, next=hint, retry_after_s=again)
        what, why = f"the provider gave no usable answer: {where}{codes}", self._tidy(failure.message, key)
        hint = "" if failure.status else "check the route's base_url, and that it can be reached from here"
        return ModelFault(kind, what, why=why, next=_NEXT.get(kind, hint), retry_after_s=again)

    def _tidy(self, text: str, key: str | None) -> str:
        return clean(self._redact(text), (key or "",))


def _litellm() -> Any:
    """litellm, imported and quiet."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_DISABLE_REDACT_SECRETS"] = "true"  # 20 s for each MB of an error whose text is never shown
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it reads a .env above itself: a project's own, where its venv is
    import httpx
    import litellm

    vendor: Any = litellm
    vendor.suppress_debug_info = True
    if vendor.client_session is None:
        for name in ("LiteLLM", "openai", "httpx", "httpcore"):  # they print headers and bodies where told to
            logging.getLogger(name).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", message="Pydantic serializer")  # and this, parts of an answer
        vendor.sync_transport = transport()  # for its own clients, and below for those of the openai library
        vendor.client_session = httpx.Client(transport=vendor.sync_transport)
    return vendor


def _vendor_errors() -> tuple[type[Exception], ...]:
    import httpx
    import openai

    return (openai.OpenAIError, httpx.HTTPError, *_PYTHON_ERRORS)


def _text(value: str) -> str:
    """Text that JSON can carry: lone surrogates replaced."""
    return value.encode("utf-8", "replace").decode()


def _message(message: Message) -> dict[str, Any]:
    """The OpenAI shape, with nothing in it but what the wire knows."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        told = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in message.tool_calls]
        out["content"] = message.content or None
        out["tool_calls"] = [{"id": id, "type": "function", "function": one} for id, one in told]
    if message.tool_call_id:
        out["tool_call_id"] = message.tool_call_id
    return out


def _reply(answer: Any, heard: Sequence[Any], request: ModelRequest, model: str, seen: Exchange) -> Reply:
    """Our Reply from the messages in litellm's answer. Some providers' text and calls come as a choice each."""
    if not heard:
        raise ValueError("the provider answered without any choice")
    calls = tuple(_call(call) for said in heard for call in getattr(said, "tool_calls", None) or ())
    texts = [said.content for said in heard if isinstance(said.content, str) and said.content]
    refusal = next(filter(None, map(_refusal, heard)), "") or _refused_item(seen)
    finish = next(filter(None, map(_finish, answer.choices)), None)
    if finish is None and refusal and not texts and not calls:
        finish = Finish.FILTERED
    return Reply(
        Message("assistant", _text("\n".join(texts) or refusal), calls),
        finish or (Finish.TOOLS if calls else Finish.STOP),
        _usage(answer, heard, request),
        str(getattr(answer, "model", None) or model),
        _reported(getattr(getattr(answer, "usage", None), "cost", None)),
    )


def _finish(choice: Any) -> Finish | None:
    native = specific(choice).get("native_finish_reason")
    return _FINISHES.get(str(choice.finish_reason).lower()) or _FINISHES.get(str(native).lower())


def _refusal(said: Any) -> str:
    found = getattr(said, "refusal", None) or specific(said).get("refusal")
    return found if isinstance(found, str) else ""


def _refused_item(seen: Exchange) -> str:
    """The refusal in a response object, which litellm drops."""
    output = seen.json().get("output")
    parts = [part for item in output or () for part in item.get("content") or ()] if isinstance(output, list) else []
    return next((str(part["refusal"]) for part in parts if part.get("type") == "refusal" and part.get("refusal")), "")


def _call(call: Any) -> ToolCall:
    said, arguments = call.function, call.function.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(str(call.id or "").partition(_SIGNATURE)[0], str(said.name or ""), _text(text))


def _usage(answer: Any, heard: Sequence[Any], request: ModelRequest) -> Usage:
    """The provider's usage; where it gives none, an upper bound by bytes, marked as counted."""
    given = getattr(answer, "usage", None)
    details = getattr(given, "prompt_tokens_details", None)
    prompt, output = _whole(given, "prompt_tokens"), _whole(given, "completion_tokens")
    read = _whole(details, "cached_tokens") or _whole(given, "cache_read_input_tokens")
    wrote = _whole(details, "cache_creation_tokens") or _whole(given, "cache_creation_input_tokens")
    counted = prompt == 0 or output == 0
    if counted:
        wire = [[_message(message) for message in request.messages], [str(tool) for tool in request.tools]]
        prompt = prompt or len(json.dumps(wire, ensure_ascii=False).encode("utf-8", "replace"))
        output = output or min(request.max_output_tokens, sum(map(_written, heard)))
    return Usage(
        prompt,
        output,
        cache_read=min(prompt, read),
        cache_write=min(max(0, prompt - read), wrote),
        reasoning=_whole(getattr(given, "completion_tokens_details", None), "reasoning_tokens"),
        counted=counted,
    )


def _billed(seen: Exchange) -> Usage | None:
    """The usage in an answer that is none otherwise, in any provider's words; cached input as if it was not."""
    body = seen.json()
    told = body.get("usage") or body.get("usageMetadata")
    given = SimpleNamespace(**told) if isinstance(told, Mapping) else None
    wrote = _whole(given, "cache_creation_input_tokens")
    prompt = _whole(given, "prompt_tokens", "promptTokenCount")
    prompt = prompt or _whole(given, "input_tokens") + wrote + _whole(given, "cache_read_input_tokens")
    output = _whole(given, "completion_tokens", "output_tokens")
    output = output or _whole(given, "candidatesTokenCount") + _whole(given, "thoughtsTokenCount")
    return Usage(prompt, output, cache_write=wrote) if prompt else None


def _written(said: Any) -> int:
    """Bytes that the model wrote."""
    texts = [getattr(said, "content", None), getattr(said, "reasoning_content", None)]
    for call in getattr(said, "tool_calls", None) or ():
        texts += [call.function.name, call.function.arguments]
    return sum(len(str(text).encode("utf-8", "replace")) for text in texts if text)


def _whole(holder: Any, *names: str) -> int:
    """The first of these that is a count; 0 where none is, or none that can be true."""
    values = (getattr(holder, name, None) for name in names)
    return next((one for one in values if isinstance(one, int) and 0 < one <= _MOST_TOKENS and one is not True), 0)


def _reported(cost: Any) -> int | None:
    """The provider's own figure in nano-dollars, rounded up; None where it gives none that can be one."""
    try:
        exact = Decimal(str(cost))
        fits = 0 <= exact <= _MOST_USD  # before it is made a whole number, which may have a million digits
    except InvalidOperation:
        return None
    return int((exact * NANO).to_integral_value(rounding="ROUND_CEILING")) if fits else None


def _failure(error: Exception, seen: Exchange) -> Failure:
    """What came over the wire; where nothing was sent, what litellm says of that."""
    told = _told(seen)
    codes = [str(told[key]) for key in ("code", "type", "status") if told.get(key)]
    codes += [code for name, code in _BY_NAME.items() if type(error).__name__ == name]
    status = getattr(error, "status_code", None) or 0
    if seen.asked:
        status = seen.status if seen.whole or seen.status >= _ERRORS else 0
        unreadable = 0 < status < _REDIRECTS and not (told or codes)
        codes += ["malformed_body"] if unreadable or status in _GAVE_UP or (seen.lost and not status) else []
    message = _words(told) or seen.problem
    if "malformed_body" in codes and not message:
        message = seen.body.decode("utf-8", "replace")
    message = message or _PREFIXES.sub("", str(error)).partition("Traceback")[0]
    message = message if len(message) < _SHOWN else f"{len(message)} characters"
    named = tuple(code for code in dict.fromkeys(codes) if not code.isdigit() and len(code) < _CODE)
    return Failure(int(status), named, message, seen.headers)


def _told(seen: Exchange) -> Mapping[str, Any]:
    """The error object of the answer, which some send inside another, or as a text; none where it has the shape of a
    success."""
    body = seen.json()
    if seen.status < _ERRORS and not body.get("error"):
        return {}
    inner = body.get("error") or body.get("detail")
    return inner if isinstance(inner, Mapping) else {"message": inner} if isinstance(inner, str) else body


def _words(body: Mapping[str, Any]) -> str:
    """What the error says, with the details that tell a burst from a spent quota."""
    more = body.get("details") or body.get("metadata")
    return str(body.get("message") or "") + (f" {json.dumps(more)}" if more else "")
