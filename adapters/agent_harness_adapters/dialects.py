"""What a provider wants beside the messages: marks for its prompt cache, its own thoughts back, switches.

All of it is put on just before the wire, so that histories, digests and recordings know nothing of it. A conversation
lives in one transport; what another route or an earlier process heard is not sent to this one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_harness.types import ModelRequest, Reply, canonical, digest

_MARK = {"cache_control": {"type": "ephemeral"}}
_HOSTS_OF_CLAUDE = {"anthropic", "azure_ai", "bedrock", "databricks", "openrouter", "vertex_ai"}
_WANT_REASONING = {"deepseek", "moonshot"}


class Dialect:
    """One route's, for one conversation."""

    def __init__(self, model: str, base_url: str | None) -> None:
        provider = model.partition("/")[0] if "/" in model else ""
        claude = "claude" in model.lower()
        self._marks = provider == "anthropic" or (claude and (not provider or provider in _HOSTS_OF_CLAUDE))
        at_home = base_url is None or "://api.openai.com" in base_url
        self._keyed = provider == "azure" or (provider == "openai" and at_home)
        self._reasoning = provider in _WANT_REASONING
        self._model = model.replace("/responses/", "/", 1) if "/responses/" in model else ""
        self._thoughts: dict[int, tuple[int, Mapping[str, Any], Sequence[Any]]] = {}

    def switches(self, request: ModelRequest, litellm: Any) -> dict[str, Any]:
        """Arguments of the call. A key per conversation keeps its calls on the machine that has its prefix cached;
        the responses API gives thoughts back only encrypted, and then the provider need not store anything."""
        out: dict[str, Any] = {}
        if self._keyed:
            opening = [message.as_json() for message in request.messages[:2]]
            out["prompt_cache_key"] = digest(canonical([request.role, opening]))[-32:]
        if self._model and litellm.supports_reasoning(model=self._model):
            out |= {"store": False, "include": ["reasoning.encrypted_content"]}
        return out

    def said(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages as this provider wants them."""
        for place, (count, fields, signatures) in self._thoughts.items():
            if place < len(messages) and len(messages[place].get("tool_calls", ())) == count:
                messages[place] |= fields
                for call, signature in zip(messages[place].get("tool_calls", ()), signatures, strict=True):
                    if signature:
                        call["provider_specific_fields"] = {"thought_signature": signature}
        return _marked(messages) if self._marks else messages

    def keep(self, place: int, reply: Reply, heard: Sequence[Any]) -> None:
        """Remember the thoughts in an answer, whose message will stand at `place` in the history. Only signed ones:
        the provider takes no others back."""
        fields: dict[str, Any] = {}
        for name, seals in (("thinking_blocks", ("signature", "data")), ("reasoning_items", ("encrypted_content",))):
            parts = [one for said in heard for one in getattr(said, name, None) or ()]
            if signed := [one for one in parts if any(map(one.get, seals))]:
                fields[name] = signed
        texts = [getattr(said, "reasoning_content", None) for said in heard]
        if self._reasoning and any(texts):
            fields["reasoning_content"] = "".join(text for text in texts if text)
        for said in heard:
            if found := specific(said).get("thought_signatures"):
                fields["provider_specific_fields"] = {"thought_signatures": found}
        calls = [call for said in heard for call in getattr(said, "tool_calls", None) or ()]
        signatures = [specific(call).get("thought_signature") for call in calls]
        self._thoughts.pop(place, None)
        if fields or any(signatures):
            self._thoughts[place] = (len(reply.message.tool_calls), fields, signatures)


def specific(part: Any) -> Mapping[str, Any]:
    """Fields that litellm puts aside on a part of an answer."""
    found = getattr(part, "provider_specific_fields", None)
    return found if isinstance(found, Mapping) else {}


def _marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cache marks, three at most (four are allowed): after the system message, which has the tools before it; at the
    end; and where the end was one answer ago, so that it is found however many results came since."""
    last = len(messages) - 1
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    places = {last, answers[-1] - 1 if answers else last} | ({0} if messages[0]["role"] == "system" else set())
    return [_mark(message) if index in places else message for index, message in enumerate(messages)]


def _mark(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if not content or not content.strip():
        return message  # an empty text may not be marked
    if message["role"] == "tool":
        return message | _MARK
    return message | {"content": [{"type": "text", "text": content, **_MARK}]}
