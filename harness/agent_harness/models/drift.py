"""Whether two texts differ in more than what differs between any two runs.

What is set equal, in this order: temporary paths; dates and times; durations; memory addresses; uuids; ids of hex
digits (containers, commits made inside the sandbox: 7 digits or more, letters and digits both); process ids; how many
bytes of an output are not shown (the width of a duration is among them). Nothing else: a changed file, count, test
name or message is a difference.
"""

import re
from itertools import zip_longest

_ENDS = r"(?=[/\s'\":),;]|$)"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAY = rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:{_MONTHS}) {{1,2}}\d{{1,2}}"

VOLATILE: tuple[tuple[str, str], ...] = (
    (r"(?<=/tmp/)(?:pytest-of-[\w.-]+/pytest-\d+|(?:tmp[._-]?|[\w-]+[._-])[A-Za-z0-9_]{6,})" + _ENDS, "<temporary>"),
    (r"\btmp\.[A-Za-z0-9]{6,}\b", "<temporary>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?", "<time>"),
    (r"\b" + _DAY + r"(?: +\d\d:\d\d(?::\d\d)?| +\d{4})*(?: [+-]\d{4})?", "<time>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
    (r"\b\d+m\d+(?:\.\d+)?s\b", "<duration>"),
    (r"\b\d+(?:\.\d+)? ?(?:s|ms|us|µs|ns|secs?|seconds?|minutes?|milliseconds?)\b", "<duration>"),
    (r"\b0x[0-9a-fA-F]{6,}\b", "<address>"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
    (r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", "<id>"),
    (r"(?i)\bpid[ =:]{1,2}\d+\b", "<pid>"),
    (r"\b\d+ bytes(?= cut; | elided: )", "<size>"),
)
"""Pattern and what stands for it. Recordings are compared by this list, so a change of it is a change of behaviour."""

_PATTERNS = [(re.compile(pattern), name) for pattern, name in VOLATILE]


def steady(text: str) -> str:
    """The text with all that is volatile set equal."""
    for pattern, name in _PATTERNS:
        text = pattern.sub(name, text)
    return text


def first_difference(recorded: str, now: str) -> tuple[int, str, str] | None:
    """The first differing line (from 1) and both its forms as they were, or None where the texts say the same."""
    if recorded == now or steady(recorded) == steady(now):
        return None
    for number, (then, here) in enumerate(zip_longest(recorded.splitlines(), now.splitlines()), 1):
        if then is None or here is None or steady(then) != steady(here):
            return number, _shown(then), _shown(here)
    return 1, "(the same lines, other line ends)", "(the same lines, other line ends)"


def _shown(line: str | None) -> str:
    if line is None:
        return "(nothing)"
    return repr(line if len(line) <= 160 else line[:159] + "…")
