"""The one table of provider failures."""

import time

import pytest

from agent_harness.errors import ModelFaultKind
from agent_harness_adapters.provider_faults import Failure, classify, clean, retry_after

CASES = [
    # status, codes, message, kind
    (401, ("invalid_api_key",), "Incorrect API key provided", "auth"),
    (403, ("permission_error",), "not allowed", "auth"),
    (403, (), "", "auth"),
    (400, ("INVALID_ARGUMENT",), "API key not valid. Please pass a valid API key.", "auth"),
    (402, (), "Payment required", "cap"),
    (
        429,
        ("insufficient_quota",),
        "You exceeded your current quota, please check your plan and billing details.",
        "cap",
    ),
    (429, (), "You have hit your weekly limit. It resets on Monday.", "cap"),
    (400, ("invalid_request_error",), "Your credit balance is too low to access the API.", "cap"),
    (403, (), "Key limit exceeded (monthly limit).", "cap"),
    (200, ("insufficient_quota",), "no credits", "cap"),
    (429, ("rate_limit_exceeded",), "Rate limit reached on requests per min. Please try again in 1.2s.", "retry"),
    (
        429,
        ("RESOURCE_EXHAUSTED",),
        'You exceeded your current quota: GenerateRequestsPerMinute, retryDelay": "34s"',
        "retry",
    ),
    (429, (), "Too many tokens, please wait before trying again.", "retry"),
    (429, (), "", "retry"),
    (
        429,
        ("rate_limit_exceeded",),
        "Request too large for m on tokens per min: Limit 10000, Requested 12000",
        "context",
    ),
    (500, (), "boom", "retry"),
    (503, (), "<html>", "retry"),
    (529, ("overloaded_error",), "Overloaded", "retry"),
    (408, (), "", "retry"),
    (0, (), "Connection error.", "retry"),
    (200, ("server_error",), "", "retry"),
    (200, (), "overloaded", "retry"),
    (200, ("malformed_body",), "Expecting value: line 1 column 1", "malformed"),
    (400, ("context_length_exceeded",), "x", "context"),
    (400, (), "This model's maximum context length is 8192 tokens. However, you requested 9000", "context"),
    (400, ("invalid_request_error",), "prompt is too long: 210000 tokens > 200000 maximum", "context"),
    (400, (), "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "context"),
    (400, (), "the request exceeds the available context size. try increasing the context size", "context"),
    (500, (), "context size exceeded", "context"),
    (413, (), "", "context"),
    (400, ("content_policy_violation",), "x", "filtered"),
    (
        400,
        ("content_filter",),
        "The response was filtered due to the prompt triggering content management policy",
        "filtered",
    ),
    (400, (), "Your request was rejected as a result of our safety system.", "filtered"),
    (404, ("model_not_found",), "The model does not exist", "refused"),
    (400, (), "Unknown parameter: foo", "refused"),
    (422, (), "field required", "refused"),
    (418, (), "", "refused"),
    (307, (), "", "refused"),
    (504, ("malformed_body",), "", "malformed"),
]


@pytest.mark.parametrize(("status", "codes", "message", "kind"), CASES)
def test_the_table(status, codes, message, kind):
    assert classify(Failure(status, codes, message)) is ModelFaultKind(kind)


NOW = 1_796_043_600.0  # Mon, 30 Nov 2026 13:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"Retry-After": "7"}, "", 7.0),
        ({"retry-after": " 0 "}, "", 0.0),
        ({"Retry-After-Ms": "1500", "Retry-After": "2"}, "", 1.5),
        ({"Retry-After": "Mon, 30 Nov 2026 13:02:00 GMT"}, "", 120.0),
        ({"Retry-After": "Mon, 30 Nov 2026 12:00:00 GMT"}, "", 0.0),
        ({"Retry-After": "soon"}, "", None),
        ({"Retry-After": "-5"}, "", None),
        ({"Retry-After": "1e9"}, "", None),
        ({"Retry-After": "999999999"}, "", 86_400.0),
        ({"Retry-After": "9" * 400}, "", 86_400.0),
        ({"Retry-After": "Mon, 30 Nov 2099 13:00:00 GMT"}, "", 86_400.0),
        ({}, "Please try again in 1.2s.", 1.2),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Please try again in 7m12s.", 432.0),
        ({}, "Please try again in 1h2m.", 3720.0),
        ({}, 'details: "retryDelay": "34s"', 34.0),
        ({}, "Please try again in a while.", None),
        ({}, f"Please try again in {'9' * 5000}h{'9' * 5000}m.", 86_400.0),
        ({}, "", None),
    ],
)
def test_the_wait_that_is_asked_for(headers, message, seconds):
    assert retry_after(Failure(429, (), message, headers), NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "bad key sk-abcdef1234567890",
        "GET https://user:k3y-v4lue-long@host/v1",
        "https://host/v1?key=k3y-v4lue-long&x=1",
        "Authorization: Bearer k3y-v4lue-long",
        "raw k3y-v4lue-long",
        "x" * 290 + " k3y-v4lue-long " + "y" * 100,
    ],
)
def test_no_part_of_a_key_stays(text):
    shown = clean(text, ("k3y-v4lue-long",))
    assert "v4l" not in shown and "abcdef" not in shown
    assert len(shown) <= 300 and "\n" not in shown


def test_ordinary_words_stay():
    assert clean("task-abc\nfailed: keyword=3 in monkey\x1b[0m") == "task-abc failed: keyword=3 in monkey [0m"


@pytest.mark.parametrize("word", ["a", "a_", "key_", "a:", "bearer ", "sk-", "x://", "=", "retry in ", "limit "])
def test_a_long_message_is_cleaned_and_classified_at_once(word):
    """A pattern holds the interpreter while it searches: no deadline and no heartbeat could."""
    text = word * (600_000 // len(word))
    began = time.monotonic()
    clean(text), classify(Failure(429, (), text)), retry_after(Failure(429, (), text), NOW)
    assert time.monotonic() - began < 5
