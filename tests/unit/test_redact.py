import base64
import json
from urllib.parse import quote

import pytest

from agent_harness.redact import Redactor, scrub

KEY = 'sk-Zq/9+x=4kv&7"Lm\\end'
REDACT = Redactor(
    {
        "API_KEY": KEY,
        "SHORT": "abc1234",
        "PEM": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nAQEFAASCBKcwggSjAgEAAo\n-----END KEY-----\n",
    }
)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY, safe="").lower().replace(KEY.lower(), KEY),
        b64(KEY),
        b64(KEY).rstrip("="),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        json.dumps(KEY)[1:-1],
        json.dumps(json.dumps({"k": KEY})),
        repr(KEY)[1:-1],
    ],
)
def test_every_form_a_program_prints_is_found_and_only_the_span_is_replaced(form):
    if form == quote(KEY, safe="").lower():
        form = "sk-Zq%2f9%2bx%3d4kv%267%22Lm%5cend"
    out = REDACT(f"before {form} after")
    assert out.startswith("before ")
    assert out.endswith(" after")
    assert "[redacted:API_KEY]" in out
    assert "Zq" not in out
    assert REDACT(out) == out


@pytest.mark.parametrize("user", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("tail", ["", "\n", "ab", "abc"])
def test_base64_inside_a_longer_text_is_found_at_every_alignment(user, tail):
    out = REDACT("Basic " + b64(user + KEY + tail))
    assert "[redacted:API_KEY]" in out
    assert b64(KEY)[4:16] not in out


@pytest.mark.parametrize("text", ["task-abc", "abc1234", "sk-", "", "sk-Zq/9+x=4kv", "-----BEGIN KEY-----"])
def test_other_text_is_untouched(text):
    assert REDACT(text) == text


def test_each_long_line_of_a_key_counts():
    assert REDACT("  MIIEvQIBADANBgkqhkiG9w0\r\n") == "  [redacted:PEM]\r\n"


def test_the_longer_of_two_secrets_wins():
    both = Redactor({"A": "password1", "B": "password1-and-more"})
    assert both("password1-and-more password1!") == "[redacted:B] [redacted:A]!"


def test_white_space_around_a_value_does_not_hide_it():
    assert Redactor({"A": "password1\n"})("x=password1;") == "x=[redacted:A];"


def test_scrub_reaches_all_of_plain_data():
    data = {"a": [KEY, {"b": (KEY, 1, None, 1.5, True)}], KEY: "x", "lone": "\ud800"}
    assert scrub(data, REDACT) == {
        "a": ["[redacted:API_KEY]", {"b": ["[redacted:API_KEY]", 1, None, 1.5, True]}],
        "[redacted:API_KEY]": "x",
        "lone": "?",
    }


def test_an_exception_is_told_with_all_its_causes_and_no_secret():
    try:
        try:
            try:
                raise ValueError(f"GET https://host/v1?key={quote(KEY, safe='')} failed")
            except ValueError as error:
                raise OSError(f"send {KEY}") from error
        except OSError as error:
            raise RuntimeError("no answer") from error
    except RuntimeError as error:
        text = REDACT.exception(error)
    assert "ValueError: GET https://host/v1?key=[redacted:API_KEY] failed" in text
    assert "OSError: send [redacted:API_KEY]" in text
    assert "RuntimeError: no answer" in text
    assert "4kv" not in text


def test_it_does_not_show_its_secrets():
    assert repr(REDACT) == "Redactor(API_KEY, PEM)"


def test_without_secrets_nothing_changes():
    assert Redactor({})("anything") == "anything"
