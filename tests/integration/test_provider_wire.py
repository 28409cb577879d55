"""Each provider's wire format over real HTTP: what is sent, what is read back, what is cached, which key goes where."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from agent_harness.errors import CredentialError, ModelFault, ModelFaultKind
from agent_harness.models.pricing import PriceTable
from agent_harness.models.records import CallLog
from agent_harness.models.routes import Rate, Route
from agent_harness.types import Finish, Message, ModelRequest, Spend, ToolCall, ToolSpec, Usage
from agent_harness_adapters.litellm_transport import LitellmTransport
from fakes import provider_server as wire
from fakes.model_parts import ListRecorder
from fakes.provider_server import ProviderServer, Said, http

KEY = "sk-planted-7f3a9c1e55d0b2"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = ToolSpec("bash", "Run a command.", SCHEMA)
SYSTEM, USER = Message("system", "You fix."), Message("user", "Fix ünïcode.")
ASK = ModelRequest("implementer", (SYSTEM, USER), (BASH,), 500)
TWO = Said("I look.", (("call_one", "bash", {"command": "ls"}), ("call_two", "bash", {"command": "pwd"})), "Hmm.")


@dataclass(frozen=True)
class Provider:
    """One wire format: its route, its words, and how to read a request of it."""

    model: str
    render: Any
    path: str
    seen_path: str
    key_header: str
    cap: str
    read: Any


def of_openai(body: dict) -> list[tuple]:
    out = []
    for message in body["messages"]:
        if message["role"] == "tool":
            out.append(("result", message["tool_call_id"], text_of(message["content"])))
            continue
        if message.get("content"):
            out.append((message["role"], text_of(message["content"])))
        asked = [(one["id"], one["function"]) for one in message.get("tool_calls", ())]
        out += [("call", name, said["name"], json.loads(said["arguments"])) for name, said in asked]
    out.append(("tools", [(t["function"]["name"], t["function"]["parameters"]) for t in body["tools"]]))
    return out


def of_responses(body: dict) -> list[tuple]:
    out: list[tuple] = [("system", body["instructions"])]
    for item in body["input"]:
        if item["type"] == "message":
            out.append((item["role"], text_of(item["content"])))
        elif item["type"] == "function_call":
            out.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
        elif item["type"] == "function_call_output":
            out.append(("result", item["call_id"], text_of(item["output"])))
    out.append(("tools", [(t["name"], t["parameters"]) for t in body["tools"]]))
    return out


def of_anthropic(body: dict) -> list[tuple]:
    out: list[tuple] = [("system", text_of(body["system"]))]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "text":
                out.append((message["role"], block["text"]))
            elif block["type"] == "tool_use":
                out.append(("call", block["id"], block["name"], block["input"]))
            elif block["type"] == "tool_result":
                out.append(("result", block["tool_use_id"], text_of(block["content"])))
    out.append(("tools", [(t["name"], t["input_schema"]) for t in body["tools"]]))
    return out


def of_gemini(body: dict) -> list[tuple]:
    """This format has no ids: results stand in the order of their calls."""
    out: list[tuple] = [("system", text_of(body["system_instruction"]["parts"]))]
    ids = iter(("call_one", "call_two") * 9)
    for content in body["contents"]:
        for part in content["parts"]:
            if "text" in part and "thoughtSignature" not in part:
                out.append(("assistant" if content["role"] == "model" else "user", part["text"]))
            elif "function_call" in part:
                out.append(("call", next(ids), part["function_call"]["name"], part["function_call"]["args"]))
            elif "function_response" in part:
                out.append(("result", next(ids), part["function_response"]["response"]["content"]))
    declared = [one for tool in body["tools"] for one in tool["function_declarations"]]
    out.append(("tools", [(t["name"], t["parameters"]) for t in declared]))
    return out


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


CHAT = ("/v1/chat/completions", "authorization")
PROVIDERS = {
    "openai": Provider("openai/gpt-4o", wire.openai, "/v1", *CHAT, "max_tokens", of_openai),
    "openai reasoning": Provider("openai/gpt-5", wire.openai, "/v1", *CHAT, "max_completion_tokens", of_openai),
    "openai responses": Provider(
        "openai/responses/gpt-5", wire.responses, "/v1", "/v1/responses", CHAT[1], "max_output_tokens", of_responses
    ),
    "anthropic": Provider(
        "anthropic/claude-sonnet-4-5", wire.anthropic, "", "/v1/messages", "x-api-key", "max_tokens", of_anthropic
    ),
    "gemini": Provider(
        "gemini/gemini-2.5-pro",
        wire.gemini,
        "/v1beta",
        "/v1beta/models/gemini-2.5-pro:generateContent",
        "x-goog-api-key",
        "max_output_tokens",
        of_gemini,
    ),
    "compatible": Provider("openai/qwen-local", wire.openai, "/v1", *CHAT, "max_tokens", of_openai),
    "openrouter": Provider(
        "openrouter/anthropic/claude-sonnet-4.5", wire.openai, "/v1", *CHAT, "max_tokens", of_openai
    ),
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    LitellmTransport.preload().join()


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setenv("WIRE_TEST_KEY", KEY)


@pytest.fixture(params=list(PROVIDERS))
def provider(request) -> Provider:
    return PROVIDERS[request.param]


def transport(provider: Provider, server: ProviderServer) -> LitellmTransport:
    return LitellmTransport(model=provider.model, base_url=server.root + provider.path, api_key_env="WIRE_TEST_KEY")


def ask(provider: Provider, *script, request: ModelRequest = ASK):
    with ProviderServer(*script) as server:
        reply = transport(provider, server).send(request, 5.0)
        return reply, server.requests


def history(calls: tuple[ToolCall, ...], text: str = "I look.") -> tuple[Message, ...]:
    results = [Message("tool", f"result {n}", tool_call_id=call.id) for n, call in enumerate(calls, 1)]
    return (SYSTEM, USER, Message("assistant", text, calls), *results)


CALLS = (ToolCall("call_one", "bash", '{"command": "ls"}'), ToolCall("call_two", "bash", '{"command": "pwd"}'))


def test_a_conversation_with_tools_arrives_whole(provider):
    _, (seen,) = ask(provider, http(provider.render(TWO)), request=replace(ASK, messages=history(CALLS)))
    assert provider.read(seen.body) == [
        ("system", "You fix."),
        ("user", "Fix ünïcode."),
        ("assistant", "I look."),
        ("call", "call_one", "bash", {"command": "ls"}),
        ("call", "call_two", "bash", {"command": "pwd"}),
        ("result", "call_one", "result 1"),
        ("result", "call_two", "result 2"),
        ("tools", [("bash", SCHEMA)]),
    ]
    assert seen.path == provider.seen_path
    assert (seen.body.get("generationConfig") or seen.body)[provider.cap] == 500
    assert "stream" not in seen.body or seen.body["stream"] is False


def test_the_key_goes_into_one_header_and_nowhere_else(provider):
    _, (seen,) = ask(provider, http(provider.render(TWO)))
    holding = {name: value for name, value in seen.headers.items() if KEY in value}
    assert holding == {provider.key_header: f"Bearer {KEY}" if provider.key_header == "authorization" else KEY}
    assert KEY not in seen.path and KEY.encode() not in seen.raw


def test_text_and_both_calls_come_back_with_the_usage(provider):
    """The responses API gives text and calls as items of their own; none may be lost."""
    reply, _ = ask(provider, http(provider.render(TWO)))
    assert (reply.message.content, reply.finish) == ("I look.", Finish.TOOLS)
    assert [(c.name, json.loads(c.arguments)) for c in reply.message.tool_calls] == [
        ("bash", {"command": "ls"}),
        ("bash", {"command": "pwd"}),
    ]
    if provider.render is not wire.gemini:
        assert [c.id for c in reply.message.tool_calls] == ["call_one", "call_two"]
    assert all(len(c.id) < 48 for c in reply.message.tool_calls)
    usage = reply.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (1000, 50, 900, 0)
    assert usage.counted is False
    if provider.render is not wire.anthropic:  # it names none: they are part of its output
        assert usage.reasoning == 20


def test_what_was_written_to_a_cache_is_part_of_the_input():
    reply, _ = ask(PROVIDERS["anthropic"], http(wire.anthropic(Said("ok", read=600, wrote=300))))
    assert reply.usage == Usage(1000, 50, cache_read=600, cache_write=300)


@pytest.mark.parametrize(
    ("name", "word", "finish"),
    [
        ("openai", "length", Finish.LENGTH),
        ("openai", "content_filter", Finish.FILTERED),
        ("openai responses", "length", Finish.LENGTH),
        ("openai responses", "filtered", Finish.FILTERED),
        ("anthropic", "max_tokens", Finish.LENGTH),
        ("anthropic", "refusal", Finish.FILTERED),
        ("anthropic", "end_turn", Finish.STOP),
        ("gemini", "MAX_TOKENS", Finish.LENGTH),
        ("gemini", "SAFETY", Finish.FILTERED),
        ("gemini", "RECITATION", Finish.FILTERED),
        ("gemini", "PROHIBITED_CONTENT", Finish.FILTERED),
    ],
)
def test_why_it_stopped(name, word, finish):
    provider = PROVIDERS[name]
    assert ask(provider, http(provider.render(Said("part", finish=word))))[0].finish is finish


def test_a_refusal_is_one_in_each_form():
    chat = wire.openai(Said())
    chat["choices"][0]["message"] |= {"refusal": "I will not."}
    response = wire.responses(Said("x"))
    response["output"][0]["content"] = [{"type": "refusal", "refusal": "I will not."}]
    for name, body in (("openai", chat), ("openai responses", response)):
        reply, _ = ask(PROVIDERS[name], http(body))
        assert (reply.finish, reply.message.content) == (Finish.FILTERED, "I will not."), name
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}
    reply, _ = ask(PROVIDERS["gemini"], http(blocked))
    assert reply.finish is Finish.FILTERED


# --- thoughts -----------------------------------------------------------------------------------------------


def second_request(provider: Provider, said: Said) -> dict:
    """What is sent after the results of a first answer."""
    with ProviderServer(http(provider.render(said))) as server:
        client = transport(provider, server)
        first = client.send(ASK, 5.0).message
        # the runner may give a call another id; only its place is sure
        calls = tuple(replace(one, id=f"mine-{n}") for n, one in enumerate(first.tool_calls))
        client.send(replace(ASK, messages=history(calls, first.content)), 5.0)
        return server.requests[1].body


def test_signed_thinking_goes_back_before_its_calls():
    body = second_request(PROVIDERS["anthropic"], TWO)
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hmm.", "signature": "c2lnbmVk"}


def test_geminis_signatures_go_back_beside_their_calls():
    body = second_request(PROVIDERS["gemini"], TWO)
    parts = [part for part in body["contents"][1]["parts"] if "function_call" in part]
    assert [part.get("thoughtSignature") for part in parts] == ["c2lnbmVk" * 20 + "+/==", None]
    assert "__thought__" not in json.dumps(body)


def test_sealed_reasoning_goes_back_and_nothing_is_stored():
    body = second_request(PROVIDERS["openai responses"], TWO)
    assert [item["type"] for item in body["input"]][1:4] == ["reasoning", "message", "function_call"]
    assert body["input"][1]["encrypted_content"] == "c2lnbmVk"
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])


def test_reasoning_text_goes_back_to_those_alone_that_want_it():
    deepseek = replace(PROVIDERS["openai"], model="deepseek/deepseek-reasoner")
    assert second_request(deepseek, TWO)["messages"][2]["reasoning_content"] == "Hmm."
    for name in ("openai", "compatible", "openrouter"):
        assert "Hmm." not in json.dumps(second_request(PROVIDERS[name], TWO)), name


def test_thinking_without_a_signature_is_not_sent_back():
    def unsigned(said):
        body = wire.anthropic(said)
        body["content"][0] = {"type": "thinking", "thinking": "Hmm.", "signature": ""}
        return body

    body = second_request(replace(PROVIDERS["anthropic"], render=unsigned), TWO)
    assert "Hmm." not in json.dumps(body)


def test_another_routes_thoughts_are_not_sent():
    with ProviderServer(http(wire.anthropic(TWO))) as server:
        transport(PROVIDERS["anthropic"], server).send(ASK, 5.0)
        transport(PROVIDERS["anthropic"], server).send(replace(ASK, messages=history(CALLS)), 5.0)
        assert "Hmm." not in server.requests[1].raw.decode()


# --- caching ------------------------------------------------------------------------------------------------


def growing(turns: int) -> list[tuple[Message, ...]]:
    """The histories of a conversation, each the beginning of the next."""
    out, messages = [], [SYSTEM, USER]
    for turn in range(turns):
        out.append(tuple(messages))
        calls = tuple(ToolCall(f"call_{turn}_{n}x", "bash", json.dumps({"command": f"echo {n}"})) for n in range(25))
        messages.append(Message("assistant", "", calls))
        messages += [Message("tool", f"out {turn}", tool_call_id=call.id) for call in calls]
    return out


def bodies(provider: Provider, histories) -> list[dict]:
    with ProviderServer(http(provider.render(Said("ok")))) as server:
        client = transport(provider, server)
        for messages in histories:
            client.send(replace(ASK, messages=messages), 5.0)
        return [seen.body for seen in server.requests]


def without_marks(value: Any) -> Any:
    """The same without marks; a text that is a block only to carry one is the text."""
    if isinstance(value, dict):
        plain = {name: without_marks(inner) for name, inner in value.items() if name != "cache_control"}
        if isinstance(plain.get("content"), list) and all(set(p) == {"type", "text"} for p in plain["content"]):
            plain["content"] = text_of(plain["content"])
        return plain
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


def last_marked(body: dict) -> int:
    return max(int(place.split("/")[2]) for place in marked(body) if place.startswith("/messages/"))


def marked(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        here = [path] if "cache_control" in value else []
        return here + [found for name, inner in value.items() for found in marked(inner, f"{path}/{name}")]
    pairs = enumerate(value) if isinstance(value, list) else ()
    return [found for index, inner in pairs for found in marked(inner, f"{path}/{index}")]


@pytest.mark.parametrize("name", ["anthropic", "openrouter"])
def test_claude_gets_marks_that_move_on_a_prefix_that_stays(name):
    provider = PROVIDERS[name]
    sent = bodies(provider, growing(4))
    for body in sent:
        assert 1 <= len(marked(body)) <= 4
        assert any("system" in place or place.startswith("/messages/0") for place in marked(body))
        assert last_marked(body) == len(body["messages"]) - 1
    for before, after in pairwise(sent):
        end = f"/messages/{last_marked(before)}"
        assert [place for place in marked(after) if place.startswith((f"{end}/", end))]  # the end of before is found
        plain, longer = without_marks(before)["messages"], without_marks(after)["messages"]
        assert json.dumps(longer[: len(plain)]) == json.dumps(plain)
        assert json.dumps(before["tools"]) == json.dumps(after["tools"])


def test_an_empty_text_is_not_marked():
    messages = (*history(CALLS)[:-1], Message("tool", "", tool_call_id="call_two"))
    _, (seen,) = ask(PROVIDERS["openrouter"], http(wire.openai(Said("ok"))), request=replace(ASK, messages=messages))
    assert seen.body["messages"][-1]["content"] == ""


@pytest.mark.parametrize("name", ["openai", "openai responses", "gemini", "compatible"])
def test_where_caching_is_automatic_nothing_is_marked_and_the_prefix_stays(name):
    sent = bodies(PROVIDERS[name], growing(3))
    assert [marked(body) for body in sent] == [[], [], []]
    field = {"openai responses": "input", "gemini": "contents"}.get(name, "messages")
    for before, after in pairwise(sent):
        assert json.dumps(after[field][: len(before[field])]) == json.dumps(before[field])
        assert "prompt_cache_key" not in after  # another server may not know it


@pytest.mark.parametrize(("name", "variable"), [("openai", "OPENAI_API_BASE"), ("openai responses", "OPENAI_API_BASE")])
def test_openai_itself_gets_one_key_per_conversation(name, variable, monkeypatch):
    provider = PROVIDERS[name]
    with ProviderServer(http(provider.render(Said("ok")))) as server:
        monkeypatch.setenv(variable, server.root + "/v1")
        client = LitellmTransport(model=provider.model, api_key_env="WIRE_TEST_KEY")
        for messages in (*growing(2), (SYSTEM, Message("user", "Something else."))):
            client.send(replace(ASK, messages=messages), 5.0)
        keys = [seen.body["prompt_cache_key"] for seen in server.requests]
    assert keys[0] == keys[1] != keys[2] and len(keys[0]) == 32


def test_the_log_knows_nothing_of_marks_and_thoughts():
    """The intent is digested before the transport sees the request, and the transport changes none of it."""
    recorder, provider = ListRecorder(), PROVIDERS["anthropic"]
    log = CallLog(recorder, str)
    request = replace(ASK, messages=history(CALLS))
    with ProviderServer(http(provider.render(TWO))) as server:
        client = transport(provider, server)
        route = Route("main", provider.model)
        for _ in range(2):
            log.asked(route, request, Spend())
            client.send(request, 5.0)
    one, two = recorder.of("model.asked")
    assert one["request"] == two["request"]
    assert "cache_control" not in repr(recorder.bodies) and "Hmm." not in repr(recorder.bodies)
    assert request.messages == history(CALLS)


def test_the_responses_route_has_the_models_price():
    table = PriceTable.load()
    model = next(name for name in table.prices if name.startswith("openai/"))
    rate = Rate.of(Route("main", model.replace("/", "/responses/")), table)
    assert rate.price == table.prices[model]


# --- faults in each provider's words ------------------------------------------------------------------------


def g(code: int, status: str, message: str, **more: Any) -> dict:
    return {"error": {"code": code, "status": status, "message": message, **more}}


def a(kind: str, message: str) -> dict:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def o(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


K = ModelFaultKind
DELAY = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("name", "status", "body", "kind"),
    [
        ("anthropic", 400, a("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), K.CONTEXT),
        ("anthropic", 400, a("invalid_request_error", "Your credit balance is too low to access the API."), K.CAP),
        ("anthropic", 400, a("invalid_request_error", "max_tokens: 500 > 8, which is the maximum"), K.REFUSED),
        ("anthropic", 401, a("authentication_error", f"invalid x-api-key {KEY}"), K.AUTH),
        ("anthropic", 403, a("permission_error", "not for this key"), K.AUTH),
        ("anthropic", 404, a("not_found_error", "model: claude-9"), K.REFUSED),
        ("anthropic", 413, a("request_too_large", "Request exceeds the maximum size"), K.CONTEXT),
        ("anthropic", 429, a("rate_limit_error", "exceeds the rate limit of 50 requests per minute"), K.RETRY),
        ("anthropic", 500, a("api_error", "Internal server error"), K.RETRY),
        ("anthropic", 529, a("overloaded_error", "Overloaded"), K.RETRY),
        ("anthropic", 200, a("overloaded_error", "Overloaded"), K.RETRY),
        ("gemini", 400, g(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), K.AUTH),
        ("gemini", 400, g(400, "INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed 1048576."), K.CONTEXT),
        ("gemini", 403, g(403, "PERMISSION_DENIED", "no"), K.AUTH),
        ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", QUOTA, details=DELAY), K.RETRY),
        ("gemini", 429, g(429, "RESOURCE_EXHAUSTED", QUOTA), K.CAP),
        ("gemini", 503, g(503, "UNAVAILABLE", "The model is overloaded."), K.RETRY),
        ("gemini", 504, g(504, "DEADLINE_EXCEEDED", "Deadline exceeded."), K.MALFORMED),
        ("gemini", 200, {"candidates": []}, K.MALFORMED),
        ("openai responses", 400, o("Your input exceeds the context window of this model.", code="context_length_exceeded"), K.CONTEXT),
        ("openai responses", 401, o(f"Incorrect API key provided: {KEY}", code="invalid_api_key"), K.AUTH),
        ("openai responses", 429, o(QUOTA, "insufficient_quota", "insufficient_quota"), K.CAP),
        ("openai responses", 429, o("Rate limit reached for gpt-5. Please try again in 6s.", "tokens", "rate_limit_exceeded"), K.RETRY),
        ("openai responses", 500, o("The server had an error", "server_error"), K.RETRY),
        ("openai responses", 200, wire.responses(Said()) | {"status": "failed", "error": {"code": "server_error", "message": "boom"}}, K.RETRY),
        ("openai responses", 200, "<html>", K.MALFORMED),
        ("openrouter", 402, {"error": {"code": 402, "message": "Insufficient credits"}}, K.CAP),
        ("openrouter", 200, {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "overloaded"}}}, K.RETRY),
        ("compatible", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "type": "BadRequestError"}, K.CONTEXT),
        ("compatible", 422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, K.REFUSED),
        ("compatible", 503, {"detail": "Model is loading"}, K.RETRY),
    ],
)  # fmt: skip
def test_faults_in_each_providers_words(name, status, body, kind):
    with ProviderServer(http(body, status)) as server:
        with pytest.raises(ModelFault) as caught:
            transport(PROVIDERS[name], server).send(ASK, 5.0)
        assert len(server.requests) == 1
    fault = caught.value
    assert fault.kind is kind, fault.line
    assert KEY not in fault.line and "litellm" not in fault.line and "Traceback" not in fault.line
    if "retryDelay" in json.dumps(body):
        assert fault.retry_after_s == 34


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_followed_by_nobody(provider, status):
    with ProviderServer(http(provider.render(TWO))) as elsewhere:
        with ProviderServer(http(b"", status, location=elsewhere.root + "/v1/anything")) as server:
            with pytest.raises(ModelFault) as caught:
                transport(provider, server).send(ASK, 5.0)
            assert caught.value.kind is ModelFaultKind.REFUSED and f"status {status}" in caught.value.line
            assert len(server.requests) == 1
        assert elsewhere.connections == 0


def test_a_key_that_is_not_set_asks_nobody(provider, monkeypatch):
    monkeypatch.delenv("WIRE_TEST_KEY")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "another-key-of-the-person")
    with ProviderServer(http(provider.render(TWO))) as server:
        with pytest.raises(CredentialError, match="WIRE_TEST_KEY"):
            transport(provider, server).send(ASK, 5.0)
        assert server.connections == 0
