"""Running reviews of the cases, one after another, each in a repository and a state of its own."""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from agent_harness.app import App
from agent_harness.bench.cases import BenchCase
from agent_harness.bench.reviewers import RecordedReviewer
from agent_harness.bench.score import Review
from agent_harness.config import Config
from agent_harness.passes import Ask


def reviews(
    cases: Sequence[BenchCase], config: Config, style: str, repeat: int, cancelled: threading.Event
) -> Iterator[Review]:
    """Each case, `repeat` times. `style` names a recorded reviewer; where it is empty the configured routes answer."""
    for case in cases:
        answers = partial(RecordedReviewer, style, case) if style else None
        with tempfile.TemporaryDirectory(prefix="agent-harness-bench-") as folder:
            root = Path(folder) / "repository"
            base, head = case.lay(root)
            told = f"{case.title}\n\n{case.story}" if case.story else ""
            with App(placed(config, root), root, transport=answers) as app:
                for number in range(repeat):
                    if cancelled.is_set():
                        return
                    began = app.clock.monotonic()
                    report = app.review(Ask(base, head, claims=told, fresh=number > 0), lambda _: None, cancelled)
                    spent = report.receipt.get("totals", {}).get("nanousd", 0)
                    yield Review(case, number, report, spent, app.clock.monotonic() - began)


def placed(config: Config, root: Path) -> Config:
    """The configuration for a repository of a case: its own source and state, no checks of somebody else's."""
    project = config.project.model_copy(update={"source": str(root), "checks": ()})
    state = config.state.model_copy(update={"dir": str(root.parent / "state"), "db": None})
    return config.model_copy(update={"project": project, "state": state})
