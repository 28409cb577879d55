"""What a provider can do wrong, as a table: each fault once, with what has to come of it.

`tests/integration/test_provider_faults.py` drives each through litellm and the whole client, over real HTTP.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from fakes.openai_server import Seen
from fakes.provider_server import CLOSE, HALF, HANG, RESET, Answer, ProviderServer, Said, http, openai, trickle

FINE = Said("fine")
"""Usage 1000 in, 50 out, 900 read from a cache."""
STALL_S = 1.5
"""The route's timeout where a fault is about time."""


@dataclass(frozen=True)
class Fault:
    """`came` is what `complete` gave: `answered: FINISH`, or the fault's kind. `charged` says for each request that
    was charged why: `said`, `counted` (bytes, where no usage came) or `worst`."""

    name: str
    script: tuple[Answer, ...]
    came: str
    requests: int
    charged: str = ""
    given_back_s: float | None = None
    timeout_s: float = 30.0
    calls: int = 1
    url: Callable[[ProviderServer], str] = field(default=lambda server: server.root + "/v1")


def error(status: int, message: str, code: str | None = None, **headers: Any) -> bytes:
    body = {"error": {"message": message, "type": code or "error", "param": None, "code": code}}
    return http(body, status, **headers)


def chat(**changes: Any) -> dict[str, Any]:
    """A chat completion whose choice, message or usage is changed."""
    body = openai(changes.pop("said", FINE))
    choice = body["choices"][0]
    choice["message"] |= changes.pop("message", {})
    choice |= changes.pop("choice", {})
    body["usage"] = (
        changes.pop("usage") if changes.get("usage", {}) is None else body["usage"] | changes.pop("usage", {})
    )
    return body | changes


def tool(name: str | None, call: str | None, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}


OK = http(openai(FINE))
TEXT = json.dumps(openai(FINE)).encode()
HTML = "<html><body>502 Bad Gateway</body></html>"
BURST = ("Rate limit reached for requests per min", "rate_limit_exceeded")
QUOTA = ("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota")
LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
WORST3 = "worst x 3"


def statuses() -> Iterator[tuple[str, list[Fault]]]:
    yield (
        "Statuses",
        [
            Fault("400, unknown parameter", (error(400, "Unrecognized request argument"),), "refused", 1),
            Fault("400, context too long in words", (error(400, LONG),), "context", 1),
            Fault("400, context too long by code", (error(400, "no", "context_length_exceeded"),), "context", 1),
            Fault("400, credit used up", (error(400, "Your credit balance is too low."),), "cap", 1),
            Fault("400, key not valid", (error(400, "API key not valid."),), "auth", 1),
            Fault("400, policy", (error(400, "rejected", "content_policy_violation"),), "filtered", 1),
            Fault("401", (error(401, "Incorrect API key provided", "invalid_api_key"),), "auth", 1),
            Fault("402", (error(402, "Payment required"),), "cap", 1),
            Fault("403", (error(403, "no access"),), "auth", 1),
            Fault("403, quota", (error(403, "monthly spend limit reached"),), "cap", 1),
            Fault("404, no such model", (error(404, "no such model", "model_not_found"),), "refused", 1),
            Fault("408", (error(408, "request timeout"),), "retry", 3),
            Fault("409", (error(409, "conflict"),), "retry", 3),
            Fault("413", (error(413, "request too large"),), "context", 1),
            Fault("422", (error(422, "field required"),), "refused", 1),
            Fault("429, burst", (error(429, *BURST),), "retry", 3),
            Fault("429, burst, then an answer", (error(429, *BURST), OK), "answered: stop", 2, "said"),
            Fault("429, quota used up", (error(429, *QUOTA),), "cap", 1),
            Fault("429, quota in words only", (error(429, QUOTA[0]),), "cap", 1),
            Fault("429, too many tokens in one request", (error(429, "Request too large for m-1"),), "context", 1),
            Fault("500", (error(500, "boom", "server_error"),), "retry", 3),
            Fault(
                "500, 500, then an answer", (error(500, "boom"), error(500, "boom"), OK), "answered: stop", 3, "said"
            ),
            Fault("502, HTML", (http(HTML, 502, content_type="text/html"),), "retry", 3),
            Fault("503, overloaded", (error(503, "overloaded"),), "retry", 3),
            Fault("504, a gateway gave up", (http(HTML, 504),), "malformed", 3, WORST3),
            Fault("529", (error(529, "Overloaded", "overloaded_error"),), "retry", 3),
            Fault("418", (http("teapot", 418),), "refused", 1),
        ],
    )


def no_answers() -> list[Fault]:
    said = {"prompt_tokens": 70, "completion_tokens": 3}
    return [
        Fault("an error object", (http({"error": {"message": "overloaded", "code": "server_error"}}),), "retry", 3),
        Fault("an error object, quota", (http({"error": {"message": "x", "code": QUOTA[1]}}),), "cap", 1),
        Fault(
            "an error object with usage",
            (http({"error": {"message": "overloaded", "code": "server_error"}, "usage": said}),),
            "retry",
            3,
            "said x 3",
        ),
        Fault("HTML", (http(HTML, content_type="text/html"),), "malformed", 3, WORST3),
        Fault("empty", (http(b""),), "malformed", 3, WORST3),
        Fault("`null`", (http("null"),), "malformed", 3, WORST3),
        Fault("a list", (http("[]"),), "malformed", 3, WORST3),
        Fault("no JSON", (http("{nonsense"),), "malformed", 3, WORST3),
        Fault("JSON that is cut", (http(TEXT[:120]),), "malformed", 3, WORST3),
        Fault("no JSON, then an answer", (http("{nonsense"), OK), "answered: stop", 2, "worst, said"),
        Fault("no choices", (http(chat(choices=[])),), "malformed", 3, "said x 3"),
        Fault("no choices and no usage", (http({"choices": []}),), "malformed", 3, WORST3),
        Fault("a choice without a message", (http(chat(choices=[{"index": 0}])),), "malformed", 3, "said x 3"),
    ]


def odd_answers() -> list[Fault]:
    deep = b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    return [
        Fault("null content, no call", (http(chat(message={"content": None})),), "answered: stop", 1, "said"),
        Fault(
            "a call without a name",
            (http(chat(message={"tool_calls": [tool("", "a")]})),),
            "answered: tools",
            1,
            "said",
        ),
        Fault(
            "two calls with one id",
            (http(chat(message={"tool_calls": [tool("bash", "a"), tool("bash", "a")]})),),
            "answered: tools",
            1,
            "said",
        ),
        Fault(
            "a call without an id",
            (http(chat(message={"tool_calls": [tool("bash", None)]})),),
            "answered: tools",
            1,
            "said",
        ),
        Fault(
            "arguments that are no JSON",
            (http(chat(message={"tool_calls": [tool("bash", "a", '{"command": "l')]})),),
            "answered: tools",
            1,
            "said",
        ),
        Fault(
            "arguments as an object",
            (http(chat(message={"tool_calls": [tool("bash", "a", {"command": "ls"})]})),),
            "answered: tools",
            1,
            "said",
        ),
        Fault("usage missing", (http(chat(usage=None)),), "answered: stop", 1, "counted"),
        Fault("usage negative", (http(chat(usage={"prompt_tokens": -5})),), "answered: stop", 1, "counted"),
        Fault("usage absurd", (http(chat(usage={"prompt_tokens": 10**15})),), "answered: stop", 1, "counted"),
        Fault("usage in words", (http(chat(usage={"prompt_tokens": "many"})),), "malformed", 3, WORST3),
        Fault("cost NaN", (http(chat(usage={"cost": float("nan")})),), "answered: stop", 1, "said"),
        Fault("wrong Content-Type", (http(TEXT, content_type="text/plain"),), "answered: stop", 1, "said"),
        Fault("a byte order mark", (http(b"\xef\xbb\xbf" + TEXT),), "answered: stop", 1, "said"),
        Fault("UTF-8 that is broken", (http(TEXT.replace(b"fine", b"fi\xffne")),), "malformed", 3, WORST3),
        Fault("nested 200,000 deep", (http(deep),), "malformed", 3, WORST3),
        Fault("20 MB", (http(chat(message={"content": "x" * (20 << 20)})),), "malformed", 3, WORST3),
        Fault(
            "20 MB in 20 KB of gzip",
            (http(gzip.compress(b" " * (20 << 20)), content_encoding="gzip"),),
            "malformed",
            3,
            WORST3,
        ),
        Fault("gzip", (http(gzip.compress(TEXT), content_encoding="gzip"),), "answered: stop", 1, "said"),
        Fault("gzip that is broken", (http(TEXT, content_encoding="gzip"),), "malformed", 3, WORST3),
    ]


def bodies() -> Iterator[tuple[str, list[Fault]]]:
    yield "Bodies of answers with status 200", [*no_answers(), *odd_answers()]
    yield (
        "Why it stopped",
        [
            Fault("content_filter", (http(chat(choice={"finish_reason": "content_filter"})),), "answered: filtered", 1, "said"),
            Fault("a refusal field", (http(chat(message={"content": None, "refusal": "No."})),), "answered: filtered", 1, "said"),
            Fault("length", (http(chat(choice={"finish_reason": "length"})),), "answered: length", 1, "said"),
            Fault("a word nobody knows", (http(chat(choice={"finish_reason": "zzz"})),), "answered: stop", 1, "said"),
            Fault("no word", (http(chat(choice={"finish_reason": None})),), "answered: stop", 1, "said"),
            Fault("`tool_calls` without any", (http(chat(choice={"finish_reason": "tool_calls"})),), "answered: stop", 1, "said"),
            Fault(
                "`stop` with a call",
                (http(chat(message={"tool_calls": [tool("bash", "a")]}, choice={"finish_reason": "stop"})),),
                "answered: tools",
                1,
                "said",
            ),
        ],
    )  # fmt: skip


def connections() -> Iterator[tuple[str, list[Fault]]]:
    cut = (OK[:-40], CLOSE)
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n40\r\n" + TEXT[:64] + b"\r\n"
    yield (
        "Time",
        [
            Fault("no answer at all", ([HANG],), "retry", 3, WORST3, timeout_s=STALL_S),
            Fault("slow headers", (list(trickle(OK, 0.3)),), "retry", 3, WORST3, timeout_s=STALL_S),
            Fault("headers, then nothing", ([HEAD, b"content-length: 900\r\n\r\n", HANG],), "retry", 3, WORST3, timeout_s=STALL_S),
            Fault("a stall in mid-body", ([OK[:-40], HANG],), "retry", 3, WORST3, timeout_s=STALL_S),
            Fault("a byte at a time, for ever", ([OK[:-200], *trickle(OK[-200:], 0.5)],), "retry", 3, WORST3, timeout_s=STALL_S),
            Fault("slow, but in time", ([0.3, OK[:100], 0.3, OK[100:]],), "answered: stop", 1, "said"),
        ],
    )  # fmt: skip
    yield (
        "Connections",
        [
            Fault("refused", (OK,), "retry", 0, url=lambda server: "http://127.0.0.1:9/v1"),
            Fault("no such host", (OK,), "retry", 0, url=lambda server: "http://nowhere.invalid/v1"),
            Fault("TLS to a plain port", (OK,), "retry", 0, url=lambda s: s.root.replace("http:", "https:") + "/v1"),
            Fault("closed before the headers", ([CLOSE],), "malformed", 3, WORST3),
            Fault("reset before the headers", ([RESET],), "malformed", 3, WORST3),
            Fault("half-closed", ([HALF],), "malformed", 3, WORST3),
            Fault("closed in mid-body", (cut,), "malformed", 3, WORST3),
            Fault("reset in mid-body", ([OK[:-40], 0.1, RESET],), "malformed", 3, WORST3),
            Fault("closed in mid-body of a 500", ([error(500, "boom")[:-9], CLOSE],), "retry", 3),
            Fault("closed in a chunk", ([chunked, CLOSE],), "malformed", 3, WORST3),
            Fault("Content-Length too long", ([http(TEXT, length=len(TEXT) + 9), CLOSE],), "malformed", 3, WORST3),
            Fault("Content-Length too short", (http(TEXT, length=len(TEXT) - 9),), "malformed", 3, WORST3),
            Fault("no HTTP", ([b"220 mail.invalid ESMTP\r\n", CLOSE],), "malformed", 3, WORST3),
            Fault("kept alive, dropped between two calls", ([OK, CLOSE],), "answered: stop", 2, "said x 2", calls=2),
            Fault("a redirect to elsewhere", (http(b"", 307, location="http://localhost:9/v1"),), "refused", 1),
            Fault("a redirect that changes the method", (http(b"", 302, location="/login"),), "refused", 1),
        ],
    )


def waits() -> Iterator[tuple[str, list[Fault]]]:
    def dated(seconds: float) -> Callable[[Seen], bytes]:
        return lambda _: error(503, "busy", retry_after=formatdate(time.time() + seconds, usegmt=True))

    yield (
        "Retry-After (the longest wait is 60 s; a longer one gives the item back)",
        [
            Fault("7 s", (error(429, *BURST, retry_after="7"), OK), "answered: stop", 2, "said"),
            Fault("1500 ms", (error(429, *BURST, retry_after_ms="1500"), OK), "answered: stop", 2, "said"),
            Fault("an HTTP date in 20 s", (dated(20), OK), "answered: stop", 2, "said"),
            Fault("an HTTP date that is past", (dated(-3600), OK), "answered: stop", 2, "said"),
            Fault("in words", (error(429, "Rate limit reached. Please try again in 6.5s."), OK), "answered: stop", 2, "said"),
            Fault("1 hour", (error(429, *BURST, retry_after="3600"),), "retry", 1, given_back_s=3600),
            Fault("31 years", (error(429, *BURST, retry_after="999999999"),), "retry", 1, given_back_s=86_400),
            Fault("12 digits", (error(429, *BURST, retry_after="9" * 12),), "retry", 1, given_back_s=86_400),
            Fault("negative", (error(429, *BURST, retry_after="-5"),), "retry", 3),
            Fault("no number", (error(429, *BURST, retry_after="soon"),), "retry", 3),
            Fault("1 hour beside a used up quota", (error(429, *QUOTA, retry_after="3600"),), "cap", 1, given_back_s=3600),
        ],
    )  # fmt: skip


def table() -> list[tuple[str, list[Fault]]]:
    """Sections and their faults."""
    return [*statuses(), *bodies(), *connections(), *waits()]
