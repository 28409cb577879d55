"""Every fault of the table, driven through litellm by the whole client over real HTTP, and some by whole runs.

docs/model-faults.md is written from what these tests and those of test_provider_runs.py measure.
"""

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_harness.budget import Budget
from agent_harness.errors import CredentialError, Exit, HarnessError, ModelFault
from agent_harness.models.client import ModelClient, Patience, Route
from agent_harness.models.pricing import Price, PriceTable
from agent_harness.types import NANO, Limits, Message, ModelRequest, Spend, ToolSpec
from agent_harness_adapters.litellm_transport import LitellmTransport
from fakes.faults import STALL_S, Fault, table
from fakes.model_parts import ListRecorder
from fakes.provider_server import ProviderServer

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "docs" / "model-faults.md"
COMMAND = (
    "WRITE_DOCS=1 .venv/bin/pytest tests/integration/test_provider_faults.py tests/integration/test_provider_runs.py"
)
RUNS = "\n## Whole runs\n"
KEY = "sk-planted-7f3a9c1e55d0b2"
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = ModelRequest("implementer", (Message("system", "You fix."), Message("user", "Fix it.")), (BASH,), 500)
SECTIONS = table()
FAULTS = {f"{section}: {fault.name}": fault for section, faults in SECTIONS for fault in faults}


class SkippingClock:
    """The real clock, only that waits pass at once."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds


@dataclass(frozen=True)
class Seen:
    """What was measured of one fault."""

    came: str
    requests: int
    waited: float
    charged: str
    exit: Exit
    given_back_s: float | None
    seconds: float
    events: ListRecorder
    line: str
    spent: Spend


def drive(fault: Fault) -> Seen:
    recorder, clock = ListRecorder(), SkippingClock()
    budget = Budget(clock, "run", Limits(50, 10**7, NANO, 10**6))
    with ProviderServer(*fault.script) as server:
        price = Price.of({"input": 1, "output": 10})
        route = Route("main", "openai/m-1", fault.url(server), "FAULT_TEST_KEY", price, timeout_s=fault.timeout_s)
        client = ModelClient(
            [route],
            lambda one: LitellmTransport(model=one.model, base_url=one.base_url, api_key_env=one.api_key_env),
            recorder=recorder,
            clock=clock,
            prices=PriceTable.load(),
            redact=str,
            patience=Patience(grace_s=5.0),
        )
        began, came, line, exit_, back = time.monotonic(), "", "", Exit.OK, None
        try:
            for _ in range(fault.calls):
                came = f"answered: {client.complete(ASK, budget).finish.value}"
        except HarnessError as error:
            came = error.kind.value if isinstance(error, ModelFault) else "auth"
            assert isinstance(error, ModelFault | CredentialError)
            line, exit_, back = error.line, error.exit, getattr(error, "retry_after_s", None)
        seconds = time.monotonic() - began
        return Seen(
            came, len(server.requests), clock.skipped, _charged(recorder), exit_, back, seconds, recorder, line, budget.spent()
        )  # fmt: skip


def _charged(recorder: ListRecorder) -> str:
    """Why each charged request was charged."""
    why = []
    for event in recorder.events:
        if event.kind == "model.asked" or not event.data["nanousd"]:
            continue
        counted = event.data["usage"]["counted"]
        failed = event.kind == "model.failed"
        why.append("worst" if failed and counted else "counted" if counted else "said")
    return ", ".join(word if count == 1 else f"{word} x {count}" for word, count in Counter(why).items())


@pytest.fixture(scope="module")
def measured() -> dict[str, Seen]:
    """All faults at once: much of it is waiting."""
    LitellmTransport.preload().join()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULT_TEST_KEY", KEY)
        with ThreadPoolExecutor(6) as pool:
            return dict(zip(FAULTS, pool.map(drive, FAULTS.values()), strict=True))


def test_there_are_enough_of_them():
    assert len(FAULTS) >= 40


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, measured):
    fault, seen = FAULTS[name], measured[name]
    assert (seen.came, seen.requests, seen.charged) == (fault.came, fault.requests, fault.charged), seen.line
    assert (seen.given_back_s is None) == (fault.given_back_s is None)
    assert seen.given_back_s == pytest.approx(fault.given_back_s, abs=30)
    answered = seen.came.startswith("answered")
    assert seen.exit is (Exit.OK if answered else Exit.CREDENTIALS if seen.came == "auth" else Exit.INCONCLUSIVE)
    assert KEY not in seen.line and "litellm" not in seen.line and "Traceback" not in seen.line
    assert seen.seconds < 3 * (fault.timeout_s + 5) + 5


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_charged_is_what_the_log_says(name, measured):
    seen = measured[name]
    ends = [event.data for event in seen.events.events if event.kind != "model.asked"]
    assert seen.spent.nanousd == sum(data["nanousd"] for data in ends)
    for asked, data in zip(seen.events.of("model.asked"), ends, strict=True):
        assert data["nanousd"] <= asked["worst"]["nanousd"]
    if "worst" in seen.charged:
        failed = [data for data in ends if data.get("usage", {}).get("counted") and "fault" in data]
        assert {data["nanousd"] for data in failed} == {seen.events.of("model.asked")[0]["worst"]["nanousd"]}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("7 s", 7, 8), ("1500 ms", 1.5, 2), ("an HTTP date in 20 s", 5, 22), ("in words", 6.5, 7.5)],
)
def test_the_wait_is_the_one_that_was_named(name, low, high, measured):
    (seen,) = (seen for key, seen in measured.items() if key.startswith("Retry-After") and key.endswith(f": {name}"))
    assert low <= seen.waited <= high


def test_a_stall_ends_at_the_deadline(measured):
    for name, fault in FAULTS.items():
        if fault.timeout_s == STALL_S:
            assert measured[name].seconds >= 3 * STALL_S


# --- the paper ----------------------------------------------------------------------------------------------

INTRO = f"""# What a provider can do wrong, and what comes of it

Written by the tests that drive each of these faults over real HTTP through litellm and the whole client; do not edit.
`{COMMAND}` writes it anew.

One route, three tries, no second route to fall back on. **came of it**: `answered: WHY IT STOPPED`, or the kind of fault:

| kind | what is done | exit code |
|---|---|---|
| retry | tried again after the wait that was named, else after a backoff; then the item is given back | 3 |
| malformed | as retry; the provider may have billed it, so it is charged | 3 |
| cap | never tried again; the endpoint is parked for this role; the item is given back | 3 |
| auth | never tried again; the run ends | 4 |
| refused, filtered | never tried again on this route | 3 |
| context | never tried again on this route; the role's run ends `context_exceeded`, its work is kept | 6 as a run |

**charged**: `said` is the provider's own usage, `counted` an upper bound by bytes where it named none, `worst` the whole
reservation: the request went out and nobody knows what became of it. `x 3` is each of three requests. A fault that is
no answer for certain (an error status, no connection) costs nothing. An item that is given back has lost no attempt.

No call is streamed: a whole answer has exact usage, one deadline and one size, and no client here shows text as it comes.
"""


def paper(measured: dict[str, Seen]) -> str:
    out = [INTRO]
    for section, faults in SECTIONS:
        out += [f"\n## {section}\n", "| fault | came of it | requests | charged | exit code |", "|---|---|---|---|---|"]
        for fault in faults:
            seen = measured[f"{section}: {fault.name}"]
            back = f", given back for {round(seen.given_back_s / 10) * 10} s" if seen.given_back_s else ""
            charged = seen.charged or "nothing"
            out.append(f"| {fault.name} | {seen.came}{back} | {seen.requests} | {charged} | {int(seen.exit) or '-'} |")
    return "\n".join(out) + "\n"


def check_paper(place: int, text: str) -> None:
    """One of the paper's two parts, the other is left as it is."""
    there = PAPER.read_text() if PAPER.exists() else ""
    parts = [*there.partition(RUNS)[::2]]
    if os.environ.get("WRITE_DOCS"):
        parts[place] = text
        PAPER.parent.mkdir(exist_ok=True)
        PAPER.write_text(RUNS.join(parts))
    assert parts[place] == text, f"docs/model-faults.md is not what was measured. Next: {COMMAND}"


def test_the_paper_is_what_was_measured(measured):
    check_paper(0, paper(measured))
