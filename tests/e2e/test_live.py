"""A live run on a real model behind an OpenAI-compatible server. Never part of `make test`.

AGENT_HARNESS_LIVE_URL=http://host:port/v1 AGENT_HARNESS_LIVE_MODEL=name pytest -m live tests/e2e/test_live.py
AGENT_HARNESS_LIVE_SECONDS (1500) is what each of the two runs may take.
"""

from __future__ import annotations

import os

import pytest

from agent_harness.errors import Exit
from agent_harness.types import NANO, ItemState, Limits
from e2e.conftest import git

pytestmark = [pytest.mark.docker, pytest.mark.live, pytest.mark.timeout(3600)]

HONEST = {
    Exit.OK: {ItemState.DONE},
    Exit.FAILED: {ItemState.FAILED},
    Exit.LIMIT: {ItemState.EXHAUSTED},
    Exit.INCONCLUSIVE: {ItemState.READY},
    Exit.HELD: {ItemState.HELD},
}


@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_an_item_ends_honestly_whatever_the_end_is(desk, protocol):
    url, model = os.environ.get("AGENT_HARNESS_LIVE_URL"), os.environ.get("AGENT_HARNESS_LIVE_MODEL")
    if not url or not model:
        pytest.skip("AGENT_HARNESS_LIVE_URL and AGENT_HARNESS_LIVE_MODEL name no model")
    (desk.folder / "harness.toml").write_text(
        '[project]\nchecks = ["python3 -m pytest -q"]\n[policy]\nkeep = ["tests/**"]\n'
        f'[routes.live]\nmodel = "openai/{model}"\nbase_url = "{url}"\nprotocol = "{protocol}"\n'
        "max_output_tokens = 512\ntimeout_s = 600\nallow_unpriced = true\n"
    )
    with desk.app() as app:
        item = desk.add(
            app,
            title="Splitting a bill loses cents",
            brief="In bill/split.py, split(1000, 3) must give [334, 333, 333]: use divmod and give the remaining cents to "
            "the first people.",
            limits=Limits(12, 200_000, NANO, float(os.environ.get("AGENT_HARNESS_LIVE_SECONDS", "1500"))),
        )
        report = desk.run(app, item)
        state, problems = app.queue.get(item).state, app.audit.verify()
        answered = app.audit.events(item=item, kinds=["model.answered"])
        failed = app.audit.events(item=item, kinds=["model.failed"])  # charged at their worst where they may be billed
    print(f"{protocol}: {report.outcome}: {report.reason}")
    assert state in HONEST[report.exit]
    assert problems == []
    assert report.receipt["totals"]["steps"] == len(answered) >= 1
    assert report.receipt["totals"]["tokens"]["input"] == sum(
        event.data.get("usage", {}).get("input", 0) for event in [*answered, *failed]
    )
    delivered = git(desk.folder, "branch", "--list", "harness/*") != ""
    assert delivered is (report.exit is Exit.OK)
