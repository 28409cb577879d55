"""What a provider's failure means: one table, read from the top, from error code, words and status.

Providers disguise: a spent quota comes as 429, an overflowing context as 400, an error inside a 200. So the code and
the words are looked at before the status. Pure: no vendor, no I/O.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from agent_harness.errors import ModelFaultKind

_RETRY, _CAP, _AUTH = ModelFaultKind.RETRY, ModelFaultKind.CAP, ModelFaultKind.AUTH
_REFUSED, _CONTEXT = ModelFaultKind.REFUSED, ModelFaultKind.CONTEXT
_FILTERED, _MALFORMED = ModelFaultKind.FILTERED, ModelFaultKind.MALFORMED


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed call. `status` 0: no HTTP answer; 200: an error inside an answer that said OK.
    `codes` are the provider's own words for the kind: error code, type, status name."""

    status: int = 0
    codes: tuple[str, ...] = ()
    message: str = ""
    headers: Mapping[str, str] | None = None


CODES: tuple[tuple[ModelFaultKind, str], ...] = (
    (_CONTEXT, "context_length_exceeded context_window_exceeded request_too_large string_above_max_length"),
    (_FILTERED, "content_policy_violation content_filter content_filtered responsibleaipolicyviolation safety"),
    (_CAP, "insufficient_quota billing_hard_limit_reached billing_not_active billing_error payment_required"),
    (_CAP, "insufficient_balance insufficient_credits budget_exceeded spend_limit_reached credits_exhausted"),
    (_AUTH, "invalid_api_key authentication_error permission_error account_deactivated unauthenticated"),
    (_AUTH, "permission_denied invalid_authentication unauthorized"),
    (_MALFORMED, "malformed_body"),
    (_RETRY, "rate_limit_exceeded rate_limit_error overloaded_error server_error internal_server_error unavailable"),
)
"""Exact error codes. `malformed_body` is our own name for an answer that nobody can read, or that was cut: it may be
billed."""

_TOO_LONG = (
    r"maximum context|context (length|window|limit|size)|prompt is too long|input is too long|too many input tokens"
    r"|exceeds? the (maximum|max) (number of )?tokens|input tokens exceed"
    r"|reduce the length of (the|your) (messages|prompt|input)"
)
_SPENT = (
    r"current quota|insufficient (quota|credit|balance|fund)|credit balance|billing|payment required|top up"
    r"|(spend|spending|budget|usage|weekly|monthly|daily) (limit|cap)|out of credits"
)
_KEY = r"api.?key (is )?(not valid|invalid|missing|expired)|(invalid|incorrect) (api.?)?key"
_UNSAFE = r"content (management|filter|polic)|safety system|usage polic|prohibited content|moderation"
_WORDS: tuple[tuple[ModelFaultKind, tuple[int, ...], str], ...] = (
    (_CONTEXT, (0, 200, 400, 413, 422, 500), _TOO_LONG),
    (_CONTEXT, (429,), r"request too large for"),
    (_RETRY, (200, 429), r"per.?minute|per.?second|retrydelay|try again in \d|requests per|tokens per min"),
    (_CAP, (200, 400, 402, 403, 429), _SPENT),
    (_AUTH, (200, 400, 401, 403), _KEY),
    (_FILTERED, (200, 400, 403, 422), _UNSAFE),
    (_RETRY, (200, 400, 403, 404, 500), r"overloaded|temporarily unavailable|model is (currently )?loading"),
)
"""Words that decide, and the statuses for which they do."""

_STATUSES = {401: _AUTH, 402: _CAP, 403: _AUTH, 413: _CONTEXT, **dict.fromkeys((408, 409, 425, 429), _RETRY)}

LONGEST_S = 86_400.0
_BY_CODE = {code: kind for kind, codes in CODES for code in codes.split()}


def classify(failure: Failure) -> ModelFaultKind:
    """The kind of a failure. What nothing names: 3xx and 4xx are refused, all else may be tried again."""
    coded = [kind for code in failure.codes if (kind := _BY_CODE.get(code.lower()))]
    final = next((kind for kind in coded if kind is not _RETRY), None)
    if final is not None:
        return final
    words = failure.message.lower()
    for kind, statuses, pattern in _WORDS:
        if failure.status in statuses and re.search(pattern, words):
            return kind
    if coded:
        return _RETRY
    refused = _REFUSED if 300 <= failure.status < 500 else _RETRY
    return _STATUSES.get(failure.status, refused)


def retry_after(failure: Failure, now_s: float) -> float | None:
    """Seconds that the provider asks to wait: Retry-After-Ms, Retry-After (seconds or an HTTP date, measured from
    `now_s` since the epoch), else what its words name. None where it names nothing that can be read. A wish beyond
    `LONGEST_S` is heard as that: no slip of a provider puts an item away for years."""
    headers = {name.lower(): value.strip() for name, value in (failure.headers or {}).items()}
    milliseconds, wish = _number(headers.get("retry-after-ms", "")), headers.get("retry-after", "")
    seconds = milliseconds / 1000 if milliseconds is not None else _number(wish)
    if seconds is None and wish:
        seconds = _until(wish, now_s)
    if seconds is None:
        seconds = _in_words(failure.message)
    return seconds if seconds is None else min(seconds, LONGEST_S)


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _until(date: str, now_s: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None


def _in_words(message: str) -> float | None:
    found = re.search(
        r'(?:(?:try again|retry) in|retrydelay"?\s*:\s*"?)\s*'
        r"(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d+(?:\.\d+)?)\s*(ms|s)?)?",
        message.lower(),
    )
    if found is None or not any(found.groups()[:3]):
        return None
    hours, minutes, rest, unit = found.groups()
    seconds = float(rest or 0) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds


_SECRETS = (
    (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", r"\1 [redacted]"),
    (r"(?i)\b((?:[a-z_]*key|token|access_token|sig|secret|password)=)[^&\s\"']+", r"\1[redacted]"),
    (r"\b(\w+://)[^/@\s]+@", r"\1[redacted]@"),
    (r"\b(sk|pk|rk|gsk|xai)-[A-Za-z0-9_*-]{8,}", "[redacted]"),
)


def clean(text: str, keys: tuple[str, ...] = ()) -> str:
    """A provider's text without keys, on one line, cut to 300 characters after that."""
    for key in keys:
        if key:
            text = text.replace(key, "[redacted]")
    for pattern, instead in _SECRETS:
        text = re.sub(pattern, instead, text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 300 else text[:299] + "…"
