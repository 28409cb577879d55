"""What a run is made of, and what it is for. `app` fills it in; pipeline and reviewing work with it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent_harness import __version__
from agent_harness.audit import AuditLog
from agent_harness.config import Config
from agent_harness.gates.checks import ChecksGate
from agent_harness.gates.review import PLAIN, ReviewGate, ReviewSurface, Terms
from agent_harness.guard import Guard, Policy
from agent_harness.models.pricing import PriceTable
from agent_harness.models.routes import Route, history_chars
from agent_harness.ports import Budget, Clock, Environment, Model, Recorder, RoleRunner, Sandbox, Termination
from agent_harness.queue import Queue
from agent_harness.receipt import build
from agent_harness.stage import Stage
from agent_harness.store.verdicts import Verdicts
from agent_harness.types import Candidate, Limits, Role, canonical, digest
from agent_harness.types.kinds import Kind
from agent_harness.workspace import HarnessRepository

READ_LIMIT = 4 << 20
"""Bytes of a file that a gate or a reviewer's quote is looked up in."""

READ_AT_ONCE = 16 << 10
"""Bytes of an output that a reviewer is shown: it has to have read every changed hunk, so its pages are large."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a run is for: its id, and the item with its limits where there is one."""

    run: str
    item: str = ""
    generation: int = 0
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of. `stage`, `model` and `budget` make a fresh one for each run or role run."""

    config: Config
    source: str
    queue: Queue
    audit: AuditLog
    clock: Clock
    repository: HarnessRepository
    verdicts: Verdicts
    runner: RoleRunner
    redact: Callable[[str], str]
    mode: str
    stage: Callable[[Work, Recorder, threading.Event], Stage]
    model: Callable[[str, Recorder, threading.Event], Model]
    budget: Callable[[Work, Role], Budget]
    closed_ms: Callable[[], int]
    """When to try again after the project's budget refused the last call; 0 when it did not."""

    def role(self, name: str) -> Role:
        """A role with the limits that the configuration gives it."""
        role = self.runner.role(name)
        return replace(role, limits=self.config.role(name).over(role.limits))

    def environment(self, role: str, recorder: Recorder, stop: threading.Event) -> Callable[[Sandbox], Environment]:
        """Makes a role run's environment around a sandbox."""
        model = self.model(role, recorder, stop)
        routes = self.config.routes_of(role)
        protocol = self.config.routes[routes[0]].protocol if routes else "tools"
        ways = [Route.configured(name, self.config.routes[name]) for name in routes] or [Route("replay", "recorded")]
        history = history_chars(ways, PriceTable.load())
        screen = Guard(Policy(self.config.guard.rules, self.config.guard.allow)).refusal
        return lambda sandbox: Environment(
            sandbox, model, recorder, self.clock, self.redact, protocol=protocol, screen=screen, history_chars=history
        )

    def reviewer(
        self,
        work: Work,
        stage: Stage,
        recorder: Recorder,
        stop: threading.Event,
        checks: ChecksGate | None,
        *,
        terms: Terms = PLAIN,
    ) -> ReviewGate:
        """The review gate of a run."""
        repository, role = self.repository, self.role("reviewer")

        def wordless(candidate: Candidate) -> Candidate:
            return replace(candidate, commit=repository.commit_tree(candidate.tree, candidate.base, "Change\n"))

        around = self.environment("reviewer", recorder, stop)
        surface = ReviewSurface(
            open=stage.review,
            checkout=stage.checkout,
            wordless=wordless,
            diff=repository.diff,
            read=self.read_small,
            contains=lambda head, before: repository.merge_base(head, before) == before,
            environment=lambda sandbox: replace(around(sandbox), observation_bytes=READ_AT_ONCE),
            ask=lambda task, around: self.runner.run(role, task, around, Termination(stop), self.budget(work, role)),
        )
        inputs = {"mode": self.mode, "config": self.config.digest, "version": __version__, "image": stage.image}
        unread = self.config.review.unread
        if self.mode != "live":  # a recorded review neither heeds earlier rounds nor is one
            terms = replace(terms, target="", fresh=True)
        return ReviewGate(
            surface,
            role,
            replace(terms, run=work.run, inputs=inputs, unread=unread, depends=self.config.sandbox.setup_files),
            verdicts=self.verdicts,
            recorder=recorder,
            clock=self.clock,
            redact=self.redact,
            reports=lambda: checks.reports if checks else [],
        )

    def opened(self, work: Work, recorder: Recorder, base: str, **more: str) -> None:
        """Record a run's beginning."""
        told = {"generation": work.generation, "base": base, "source": self.redact(self.source), "mode": self.mode}
        recorder.event(Kind.RUN_STARTED, told | {"version": __version__, "config": self.config.digest} | more)

    def receipt(self, run: str, recorder: Recorder) -> str:
        """Issue the receipt of everything in the run so far, and give its text."""
        text = canonical(build(self.audit.events(run=run)))
        recorder.event(Kind.RECEIPT_ISSUED, {"digest": digest(text)}, {"receipt": text})
        return text

    def read_small(self, tree: str, path: str) -> bytes | None:
        """A file of a tree, None where there is none or it is too large to be quoted."""
        try:
            return self.repository.read(tree, path, READ_LIMIT)
        except ValueError:
            return None


class Either(threading.Event):
    """Set when it or the other is set: a lost claim stops one life, a signal stops all. Ask with `is_set`."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether either is set."""
        return super().is_set() or self._other.is_set()
