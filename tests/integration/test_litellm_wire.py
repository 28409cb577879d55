"""litellm over real HTTP: what comes off the wire, and what every fault means. The key is planted in all of it."""

import io
import json
import logging
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import pytest

from agent_harness.budget import Budget
from agent_harness.clock import SystemClock
from agent_harness.errors import CredentialError, HarnessError, ModelFault, ModelFaultKind
from agent_harness.models.client import ModelClient, Patience, Route
from agent_harness.models.pricing import Price, PriceTable
from agent_harness.types import NANO, Finish, Limits, Message, ModelRequest, Spend, ToolCall, ToolSpec, Usage
from agent_harness_adapters.litellm_transport import LitellmTransport
from agent_harness_roles.replies import ReplyReader
from agent_harness_roles.runner import Runner
from agent_harness_roles.tools import Toolbox
from fakes.model_parts import ListRecorder
from fakes.openai_server import OpenAIServer, call, fault, say
from fakes.roles import PlainLoop

KEY = "sk-planted-7f3a9c1e55d0b2"
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = ModelRequest("implementer", (Message("system", "You fix."), Message("user", "Fix ünïcode.")), (BASH,), 500)


@pytest.fixture(scope="module", autouse=True)
def imported():
    LitellmTransport.preload().join()


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setenv("WIRE_TEST_KEY", KEY)


def transport(server: OpenAIServer, **more) -> LitellmTransport:
    return LitellmTransport(
        **{"model": "openai/m-1", "base_url": server.base_url, "api_key_env": "WIRE_TEST_KEY"} | more
    )


def ask(entry, request: ModelRequest = ASK, timeout_s: float = 5.0):
    with OpenAIServer([entry]) as server:
        reply = transport(server).send(request, timeout_s)
        return reply, server.requests


def fault_of(entry, timeout_s: float = 5.0) -> ModelFault:
    with OpenAIServer([entry, entry, entry]) as server:
        with pytest.raises(ModelFault) as caught:
            transport(server).send(ASK, timeout_s)
        assert len(server.requests) == 1
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return caught.value


def test_the_request_on_the_wire_has_only_what_the_wire_knows():  # story S7
    history = (
        *ASK.messages,
        Message("assistant", "", (ToolCall("a", "bash", '{"command": "ls"}'), ToolCall("b", "bash", "{}"))),
        Message("tool", "one", tool_call_id="a"),
        Message("tool", "two", tool_call_id="b"),
    )
    _, seen = ask(say("hi"), ModelRequest("reviewer", history, (BASH,), 321))
    body = seen[0].body
    assert set(body) == {"model", "messages", "tools", "max_tokens"}
    assert (body["model"], body["max_tokens"]) == ("m-1", 321)
    assert body["messages"][:2] == [
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": "Fix ünïcode."},
    ]
    assert body["messages"][2]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}},
        {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
    ]
    assert body["messages"][3] == {"role": "tool", "content": "one", "tool_call_id": "a"}
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "bash", "description": "Run a command.", "parameters": BASH.parameters},
        }
    ]
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_two_tools_in_one_reply_and_arguments_that_are_no_json_come_as_they_are():
    entry = {"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}, {"name": "bash", "arguments": "{bad"}]}
    reply, _ = ask(entry)
    assert reply.finish is Finish.TOOLS
    assert [(c.name, c.arguments) for c in reply.message.tool_calls] == [
        ("bash", '{"command": "ls"}'),
        ("bash", "{bad"),
    ]


def test_missing_and_repeated_ids_are_told_apart():  # field case 76
    calls = [{"name": "bash", "arguments": {}, "id": name} for name in ("x", "x", "")]
    reply, _ = ask({"tool_calls": calls})
    reader = ReplyReader(Toolbox(Runner(PlainLoop()).role("implementer")), str, text_protocol=False)
    for _ in range(2):
        names = [call.id for call in reader.read(reply).message.tool_calls]
        assert len(set(names)) == 3 and all(names)


@pytest.mark.parametrize(
    ("entry", "finish", "content"),
    [
        (say("done"), Finish.STOP, "done"),
        (say("cut", finish="length"), Finish.LENGTH, "cut"),
        (call("bash", {"command": "ls"}, finish="length"), Finish.LENGTH, ""),
        (say(None), Finish.STOP, ""),
        (say("", finish="content_filter"), Finish.FILTERED, ""),
        (say(None, message={"refusal": "I will not."}), Finish.FILTERED, "I will not."),
        (say("x", finish="something-new"), Finish.STOP, "x"),
        (say("", finish="tool_calls"), Finish.STOP, ""),
    ],
)
def test_finishes(entry, finish, content):
    reply, _ = ask(entry)
    assert (reply.finish, reply.message.content) == (finish, content)


def test_usage_and_the_providers_own_cost():
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 900, "reasoning_tokens": 20}
    reply, _ = ask(say("hi", usage=usage, cost=0.0000000011, model="m-1-2026"))
    assert reply.usage == Usage(1000, 50, cache_read=900, reasoning=20)
    assert (reply.nanousd, reply.model) == (2, "m-1-2026")
    assert ask(say("hi"))[0].nanousd is None


@pytest.mark.parametrize(
    ("told", "input_", "nanousd"),
    [
        ({"prompt_tokens": -5}, None, None),
        ({"prompt_tokens": 10**4000}, None, None),
        ({"prompt_tokens": 70, "cost": "1e999999999"}, 70, None),
        ({"prompt_tokens": 70, "cost": "1e200000"}, 70, None),
        ({"prompt_tokens": 70, "cost": -1}, 70, None),
        ({"prompt_tokens": 70, "cost": float("nan")}, 70, None),
        ({"prompt_tokens": 70, "cost": 0.5}, 70, 500_000_000),
        (
            {"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 99, "cache_creation_tokens": 10**9}},
            70,
            None,
        ),
    ],
)
def test_figures_that_cannot_be_true_are_not_believed(told, input_, nanousd):
    reply, _ = ask({"body": json.dumps(answer({"completion_tokens": 3, **told}))})
    assert reply.nanousd == nanousd
    assert reply.usage.counted is (input_ is None)
    assert reply.usage.input == input_ or input_ is None
    assert reply.usage.cache_read + reply.usage.cache_write <= reply.usage.input < 10_000


@pytest.mark.parametrize("usage", [{"prompt_tokens": 1.5e30}, {"prompt_tokens": "many"}, [1, 2]])
def test_usage_that_no_client_can_read_is_a_malformed_answer(usage):
    with pytest.raises(ModelFault) as caught:
        ask({"body": json.dumps(answer(usage))})
    assert caught.value.kind is ModelFaultKind.MALFORMED
    assert "Traceback" not in caught.value.line


def answer(usage):
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": usage}


def test_without_usage_an_upper_bound_is_counted_and_says_so():
    reply, seen = ask(say("hello", usage=None))
    assert reply.usage.counted
    assert reply.usage.input >= len("You fix.Fix ünïcode.".encode())
    assert reply.usage.output == 5
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (fault(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"), ModelFaultKind.AUTH),
        (fault(403, f"no access for {KEY}"), ModelFaultKind.AUTH),
        (fault(429, "You exceeded your current quota", code="insufficient_quota"), ModelFaultKind.CAP),
        (fault(402, "Payment required"), ModelFaultKind.CAP),
        (fault(429, "Rate limit reached", code="rate_limit_exceeded"), ModelFaultKind.RETRY),
        (fault(500, f"boom http://u:{KEY}@h/?key={KEY}"), ModelFaultKind.RETRY),
        ({"status": 503, "body": "<html>bad gateway</html>"}, ModelFaultKind.RETRY),
        (fault(400, "This model's maximum context length is 8192 tokens"), ModelFaultKind.CONTEXT),
        (fault(400, "x", code="context_length_exceeded"), ModelFaultKind.CONTEXT),
        (fault(400, "rejected", code="content_policy_violation"), ModelFaultKind.FILTERED),
        (fault(404, "no such model", code="model_not_found"), ModelFaultKind.REFUSED),
        (fault(400, "unknown parameter"), ModelFaultKind.REFUSED),
        ({"body": "<html>not json"}, ModelFaultKind.MALFORMED),
        ({"body": ""}, ModelFaultKind.MALFORMED),
        ({"body": "null"}, ModelFaultKind.MALFORMED),
        ({"body": {"object": "chat.completion", "choices": []}}, ModelFaultKind.MALFORMED),
        ({"body": {"error": {"message": "overloaded", "code": "server_error"}}}, ModelFaultKind.RETRY),  # story S8
        ({"body": {"error": {"message": "no credits", "code": "insufficient_quota"}}}, ModelFaultKind.CAP),
        (say("hello " * 100, cut=60), ModelFaultKind.MALFORMED),  # and may be billed
    ],
)
def test_faults(entry, kind):
    found = fault_of(entry)
    assert found.kind is kind, found.line
    assert found.line and "litellm" not in found.line


@pytest.mark.parametrize("size", [30_000, 4 << 20])
def test_an_error_of_any_size_is_one_short_line_at_once(size):
    began = time.monotonic()
    found = fault_of(fault(400, f"no {KEY} " * (size // 20), code="c" * size))
    assert found.kind is ModelFaultKind.REFUSED and KEY not in found.line and len(found.line) < 500
    assert time.monotonic() - began < 40  # litellm looked for secrets in it for minutes
    assert (f"{size // 20 * len(f'no {KEY} ')} characters" in found.line) == (size > 1 << 16)


@pytest.mark.parametrize("body", [{"choices": []}, {"error": {"message": "overloaded"}}])
def test_what_is_no_answer_and_was_billed_says_so(body):
    told = fault_of({"body": {"usage": {"prompt_tokens": 70, "completion_tokens": 3}, **body}})
    assert told.usage == Usage(70, 3)


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"Retry-After": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({}, None)]
)
def test_the_wait_that_the_provider_names(headers, seconds):
    assert fault_of(fault(429, "Rate limit reached", headers=headers)).retry_after_s == seconds


def test_a_server_that_never_answers_ends_at_the_timeout():  # field case 13
    assert fault_of({"hang": True}, timeout_s=0.4).kind is ModelFaultKind.RETRY


def test_a_call_whose_time_was_over_before_it_was_sent_is_never_sent():
    """On a busy machine litellm takes its time to load; the next try had gone out, and then the first did too."""
    with OpenAIServer([say("hi")]) as server:
        with pytest.raises(ModelFault, match="not loaded within 0 s") as caught:
            transport(server).send(ASK, 0.0)
        assert (server.requests, caught.value.usage) == ([], Usage())


def test_a_key_that_is_not_set_is_named_before_any_call(monkeypatch):
    monkeypatch.delenv("WIRE_TEST_KEY")
    with OpenAIServer([say("hi")]) as server:
        with pytest.raises(CredentialError, match="WIRE_TEST_KEY is not set"):
            transport(server).send(ASK, 5)
        assert server.requests == []


def test_an_endpoint_without_a_key_gets_none_of_ours(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer([say("hi")]) as server:
        transport(server, api_key_env=None).send(ASK, 5)
        assert KEY not in str(server.requests[0].headers)


def client_for(server: OpenAIServer, recorder: ListRecorder, **more) -> ModelClient:
    price = Price.of({"input": 1, "output": 10})
    route = Route("main", "openai/m-1", server.base_url, "WIRE_TEST_KEY", price, timeout_s=more.pop("timeout_s", 5.0))
    return ModelClient(
        [route],
        lambda route: LitellmTransport(model=route.model, base_url=route.base_url, api_key_env=route.api_key_env),
        recorder=recorder,
        clock=SystemClock(),
        prices=PriceTable.load(),
        redact=lambda text: text,
        patience=Patience(first_s=0.01, grace_s=0.1),
    )


def complete(entries, **more):
    """The error or reply, the requests, the events and the spend of one `complete` over the wire."""
    recorder = ListRecorder()
    budget = Budget(SystemClock(), "run", Limits(50, 10**6, NANO, 60.0))
    with OpenAIServer(entries) as server:
        client = client_for(server, recorder, **more)
        try:
            result = client.complete(ASK, budget)
        except HarnessError as error:
            result = error
        return result, server.requests, recorder, budget.spent()


def test_one_owner_of_retries_three_tries_are_three_requests():  # field case 68
    error, seen, recorder, spent = complete([fault(500, "boom")] * 9)
    assert len(seen) == 3
    assert isinstance(error, ModelFault) and error.kind is ModelFaultKind.RETRY
    assert spent == Spend()
    assert [event.kind for event in recorder.events] == ["model.asked", "model.failed"] * 3


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (fault(401, "bad key", code="invalid_api_key"), CredentialError),  # field case 64
        (fault(429, "You exceeded your current quota", code="insufficient_quota"), ModelFault),  # field case 65
        (fault(400, "maximum context length"), ModelFault),  # field case 70
    ],
)
def test_what_no_retry_can_mend_is_asked_once(entry, kind):
    error, seen, _, spent = complete([entry] * 9)
    assert type(error) is kind
    assert (len(seen), spent) == (1, Spend())


def test_slow_bytes_end_at_the_hard_deadline():  # the client library's timeout is per byte
    error, seen, _, _ = complete([say("x", slow_s=0.05)] * 3, timeout_s=0.3)
    assert isinstance(error, ModelFault) and "no whole answer within 0.3 s" in error.line
    assert len(seen) == 3


def test_the_call_is_charged_by_its_usage():
    usage = {"prompt_tokens": 1000, "completion_tokens": 7}
    reply, _, recorder, spent = complete([fault(500, "boom"), say("hi", usage=usage)])
    assert reply.message.content == "hi"
    assert spent == Spend(1, 1007, 1000 * 1000 + 7 * 10_000)
    assert recorder.of("model.answered")[0]["nanousd"] == spent.nanousd


def test_a_planted_key_appears_in_no_event_and_on_no_stream(capfd):  # field cases 80, 107, 109
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger().addHandler(handler)
    try:
        kinds = [fault(500, f"oops {KEY}"), fault(429, f"slow down {KEY}"), {"body": f"<html>{KEY}"}]
        error, _, recorder, _ = complete(kinds)
    finally:
        logging.getLogger().removeHandler(handler)
    out, err = capfd.readouterr()
    assert out == ""
    written = repr([asdict(event) for event in recorder.events]) + repr(recorder.bodies)
    assert KEY not in written + out + err + heard.getvalue() + repr(error) + str(error)


def test_the_import_needs_no_network_and_prints_nothing():  # field case 79
    code = """
import socket, sys
def refuse(*_):
    raise SystemExit("a connection was tried")
socket.socket.connect = socket.getaddrinfo = refuse
from agent_harness_adapters.litellm_transport import LitellmTransport
assert "litellm" not in sys.modules
LitellmTransport.preload().join()
assert "litellm" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_scripted_server_serves_a_file_of_entries_per_model(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"coder": [say("one"), say("two")], "judge": [call("submit", {"verdict": "pass"})]}))
    command = [sys.executable, "-m", "fakes.openai_server", str(script)]
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests)
    try:
        url = process.stdout.readline().strip()
        send = lambda model: LitellmTransport(model=f"openai/{model}", base_url=url).send(ASK, 5).message
        assert [send("coder").content, send("judge").tool_calls[0].name, send("coder").content] == [
            "one",
            "submit",
            "two",
        ]
        with pytest.raises(ModelFault, match="the script has ended"):
            send("judge")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
