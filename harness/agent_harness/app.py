"""The only wiring: names become implementations here, through entry points, and nowhere else."""

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Self, cast

from agent_harness.asking import Asked, Question, ask, roles_of
from agent_harness.audit import AuditLog
from agent_harness.budget import Budget
from agent_harness.clock import SystemClock
from agent_harness.config import Config, check_ready
from agent_harness.dry import DryRun, Unrecorded
from agent_harness.errors import ClaimLost, Exit, HarnessError, InfrastructureError, NothingToDo, UsageError
from agent_harness.gates.checks import Checks, unrunnable
from agent_harness.logs import logger
from agent_harness.models.client import ModelClient, Patience, Route
from agent_harness.models.pricing import PriceTable
from agent_harness.models.recording import RecordingTransport, ReplayTransport, check_target
from agent_harness.models.routes import Parking, Rate
from agent_harness.parts import Parts, Work
from agent_harness.passes import Ask, ReviewPlan, judge, plan
from agent_harness.pipeline import AUDIT_TRAILER, DELIVERED, Life
from agent_harness.place import Place
from agent_harness.ports import Finding, Model, Recorder, RoleRunner, SandboxEngine, Transport, Warmable
from agent_harness.queue import Queue
from agent_harness.queue.spending import Spending
from agent_harness.receipt import RunReport
from agent_harness.redact import Redactor
from agent_harness.stage import Stage, hold
from agent_harness.store import Store
from agent_harness.store.verdicts import Verdicts
from agent_harness.types import Check, Claim, Event, Item, ItemState, ReviewReport, Role, Settlement
from agent_harness.worker import this_worker
from agent_harness.workspace import HarnessRepository

__all__ = ["App", "DryRun", "ReviewReport"]


def _alike(reports: Sequence[RunReport]) -> bool:
    """Whether two items in a row met the same trouble around them: the next would meet it, too."""
    met = [one.reason for one in reports[-2:] if one.exit is Exit.INCONCLUSIVE]
    if alike := len(met) == 2 and met[0] == met[1]:
        logger().warning("two items in a row met the same trouble, so the others wait", why=met[0])
    return alike


def plugin(group: str, name: str) -> Any:
    """The class or function that an installed distribution offers under a name, in the entry point group
    `agent_harness.` and engine, loop, runner or transport."""
    found = entry_points(group=f"agent_harness.{group}", name=name)
    if not found:
        raise InfrastructureError(f"no {group} named {name!r} is installed", next="reinstall agent-harness-runner")
    return next(iter(found)).load()


class App:
    """A project's state, opened: store, log, queue, repository; sandboxes and models when first needed. `transport`
    answers in the place of every route. Raises ConfigError, StoreFault."""

    def __init__(
        self,
        config: Config,
        root: Path,
        *,
        record: Path | None = None,
        replay: Path | None = None,
        transport: Callable[[Route], Transport] | None = None,
    ) -> None:
        if record and replay:
            raise UsageError("--record and --replay exclude each other", next="choose one")
        self.config, self.root = config, root
        self.source = config.source(root)
        self.clock = SystemClock()
        self._state = private_folder(config.state_dir(root))
        self.redact = Redactor(known_secrets(config))
        self.store = Store.open(config.database(root))
        self.audit = AuditLog(self.store, self.clock, self.redact)
        bounds = config.queue.model_dump(include={"max_failures", "max_losses"})
        self.queue = Queue(self.store, self.audit, self.clock, **bounds)
        answers = ReplayTransport(replay) if replay else None
        self._answers = (lambda _: answers) if answers else transport
        """What answers without a provider, None where the routes are asked."""
        self._record = check_target(record) if record else None
        self.mode = "replay" if replay else "record" if record else "live"
        self._prices = PriceTable.load()
        self._patience = Patience(parking=Parking(self.clock))  # what refused one item is not asked for the next
        self.spending = Spending(self.store, self.clock, config.budget, paid=self._answers is None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @cached_property
    def engine(self) -> SandboxEngine:
        """The sandbox engine."""
        made: Any = plugin("engine", "docker")()
        if self.config.sandbox.pool:
            folder = self._state / "trees" / f"warm-{new_run()}"
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            self._warm = hold(folder)  # for as long as this process lives; `Stage.clear` knows it for dead then
            cast(Warmable, made).warm(self.config.sandbox.pool, folder)
        return cast(SandboxEngine, made)

    @cached_property
    def repository(self) -> HarnessRepository:
        """The harness's own repository: bases, candidates, work in progress."""
        return HarnessRepository.open(self._state / "repository.git")

    @cached_property
    def runner(self) -> RoleRunner:
        """The role runner with its loop."""
        return cast(RoleRunner, plugin("runner", "default")(plugin("loop", "mini-swe-agent")()))

    @cached_property
    def place(self) -> Place:
        """What every sandbox of the project stands on."""
        return Place(self.config, self._state, self.source, engine=self.engine, plugin=plugin)

    # --- running --------------------------------------------------------------------------------------------

    def run(
        self, item: str | None, until_empty: bool, listen: Callable[[Event], None], cancelled: threading.Event
    ) -> list[RunReport]:
        """Take items off the queue. Raises NothingToDo when none was ready, ConfigError before any is touched."""
        self.audit.subscribe(listen)
        if back := self.queue.recover():
            logger().info("took back items of dead workers", items=back)
        if (self.queue.get(item).state if item else ItemState.READY) is not ItemState.READY or not self._waiting():
            raise self._nothing(item)
        self._set_out(self._roles([self.queue.get(item)] if item else self.queue.items([ItemState.READY])))
        reports: list[RunReport] = []
        while not cancelled.is_set():
            claim = self.queue.claim(this_worker(), new_run(), item=item, ttl_s=self.config.queue.claim_ttl_s)
            if claim is None:
                break
            reports.append(self._live(claim, cancelled))
            over = reports[-1].exit in {Exit.CREDENTIALS, Exit.AUDIT, Exit.INTERRUPTED} or self.spending.closed_ms
            if not until_empty or over or _alike(reports):
                break
        if not reports:
            raise self._nothing(item)
        return reports

    def _set_out(self, roles: Sequence[str]) -> None:
        """Make sure that these roles can run, and remove what dead workers left: containers and checkouts."""
        self._ready(roles)
        self.spending.need_room()
        if gone := self.engine.reap():
            logger().info("removed containers of dead workers", containers=gone)
        if calls := self.spending.recover():
            logger().info("charged calls of dead workers at their worst case", calls=calls)
        if gone := Stage.clear(self._state / "trees"):
            logger().info("removed checkouts of dead workers", runs=gone)

    def _waiting(self) -> bool:
        """Whether any item is ready and its time has come."""
        now = self.clock.now_ms()
        return any(item.not_before_ms <= now for item in self.queue.items([ItemState.READY]))

    def _ready(self, roles: Sequence[str]) -> None:
        """Everything that can be known before an item is touched."""
        for role in self.config.roles:
            self.runner.role(role)  # a name that is no role's would be settings that nobody heeds
        for role in roles:
            if self._answers is None:
                check_ready(self.config, role)
            for name in self.config.routes_of(role):
                Rate.of(self._route(name), self._prices)
        if self._answers is None:  # its import takes seconds: beside everything that comes before the first call
            plugin("transport", "litellm").preload()
        self.place.check()

    def _roles(self, items: Sequence[Item]) -> tuple[str, ...]:
        return roles_of(items, review=self.config.review.enabled)

    def _live(self, claim: Claim, cancelled: threading.Event) -> RunReport:
        try:
            return Life(self._parts(), claim, cancelled).live()
        except ClaimLost as error:
            return RunReport(claim.item.id, claim.run, "lost", Exit.INCONCLUSIVE, error.line, {})
        except (HarnessError, OSError) as error:  # the log or the disk: not the work's fault, nor a vanished worker's
            with suppress(HarnessError):  # what cannot be written now, the next run sees by our process's end
                self.queue.settle(claim, Settlement.DEFERRED, reason=str(error))
            raise

    def _nothing(self, item: str | None) -> NothingToDo:
        if item is None:
            return self._none_ready()
        found = self.queue.get(item)
        waits = found.not_before_ms if found.state is ItemState.READY else 0
        at = f"{datetime.fromtimestamp(waits / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        state = f"it waits until {at}" if waits > self.clock.now_ms() else f"it is {found.state}"
        why = state + (f" ({found.reason})" if found.reason else "")
        verb = "retry" if found.state in {ItemState.READY, ItemState.FAILED, ItemState.EXHAUSTED} else "show"
        return NothingToDo(f"item {item} cannot be run now", why=why, next=f"agent-harness queue {verb} {item}")

    def _none_ready(self) -> NothingToDo:
        over = {ItemState.DONE, ItemState.CANCELLED}
        waiting = Counter(one.state for one in self.queue.items() if one.state not in over)
        found = ", ".join(f"{n} {'ready later' if s is ItemState.READY else s}" for s, n in waiting.items())
        again = "agent-harness queue list; agent-harness queue retry ID; or " if waiting else ""
        add = 'queue one: agent-harness queue add "TITLE" --brief "..."'
        return NothingToDo("no item is ready", why=found, next=again + add)

    def _parts(self) -> Parts:
        return Parts(
            config=self.config,
            source=self.source,
            queue=self.queue,
            audit=self.audit,
            clock=self.clock,
            repository=self.repository,
            verdicts=Verdicts(self.store),
            runner=self.runner,
            redact=self.redact,
            mode=self.mode,
            stage=self._stage,
            model=self._model,
            budget=self._budget,
            closed_ms=lambda: self.spending.closed_ms,
        )

    def _stage(self, work: Work, recorder: Recorder, stop: threading.Event) -> Stage:
        named = {"run": work.run, "item": work.item, "generation": str(work.generation)}
        labels = {f"agent-harness.{name}": value for name, value in named.items()}
        user = (os.getuid(), os.getgid()) if os.getuid() else (1000, 1000)
        shape = self.place.shape(user, labels)
        folder = self._state / "trees" / work.run
        return Stage(folder, self.repository, self.engine, shape=shape, recorder=recorder, clock=self.clock, stop=stop)

    # --- models and money -----------------------------------------------------------------------------------

    def _model(self, role: str, recorder: Recorder, stop: threading.Event) -> Model:
        routes = [self._route(name) for name in self.config.routes_of(role)]
        if not routes and self._answers is not None:
            routes = [Route("replay", "recorded", allow_unpriced=True)]
        return ModelClient(
            routes,
            self._transport,
            recorder=recorder,
            clock=self.clock,
            prices=self._prices,
            redact=self.redact,
            stop=stop,
            patience=self._patience,
        )

    def _route(self, name: str) -> Route:
        return Route.configured(name, self.config.routes[name])

    def _transport(self, route: Route) -> Transport:
        if self._answers is not None:
            return self._answers(route)
        made: Transport = plugin("transport", "litellm")(
            model=route.model, base_url=route.base_url, api_key_env=route.api_key_env, redact=self.redact
        )
        return RecordingTransport(made, self._record, self.redact) if self._record else made

    def _budget(self, work: Work, role: Role) -> Budget:
        return self.spending.budget(work.run, work.item, work.limits or self.config.limits.limits, role)

    # --- looking --------------------------------------------------------------------------------------------

    def dry_run(self, item: str | None) -> DryRun:
        """Resolve everything, run the checks on the base; no model call, no change, nothing recorded."""
        chosen = self.queue.get(item) if item else next(iter(self.queue.items([ItemState.READY])), None)
        if chosen is None:
            raise self._nothing(None)
        roles = self._roles([chosen])
        self._ready(roles)
        base = self.repository.fetch(self.source, chosen.base or self.config.project.base)
        own: tuple[Check, ...] = chosen.checks if chosen.checks is not None else self.config.project.checks
        commands = () if "answerer" in roles else own
        with self._closing(Unrecorded()) as stage:
            stage.prepare(base)
            image = stage.image
            reports = tuple(Checks(stage.checkout, self.redact).on_base(base, commands, Unrecorded()))
        limits = chosen.limits or self.config.limits.limits
        return DryRun(
            item=chosen,
            base=base,
            source=self.redact(self.source),
            image=image,
            checks=reports,
            problems=tuple(unrunnable(reports, chosen)),
            routes={role: self.config.routes_of(role) for role in roles},
            limits=limits,
            worst_nanousd=max(0, limits.nanousd - self.spending.spent()[chosen.id].nanousd),
        )

    @contextmanager
    def _closing(self, recorder: Recorder) -> Iterator[Stage]:
        stage = self._stage(Work(new_run()), recorder, threading.Event())
        try:
            yield stage
        finally:
            stage.close()

    def review(self, ask: Ask, listen: Callable[[Event], None], cancelled: threading.Event) -> ReviewReport:
        """Judge a change, with no queue."""
        self.audit.subscribe(listen)
        self._set_out(("reviewer",))
        return judge(self._parts(), ask, new_run, cancelled)

    def ask(self, question: Question, listen: Callable[[Event], None], cancelled: threading.Event) -> Asked:
        """Have a read-only role answer a question, with no queue."""
        self.audit.subscribe(listen)
        self._set_out((question.role,))
        return ask(self._parts(), Work(new_run()), question, cancelled)

    def plan_review(self, ask: Ask) -> ReviewPlan:
        """What `review` would do and the most it could cost; no model call, nothing recorded."""
        self._ready(("reviewer",))
        return plan(self._parts(), ask)

    def doctor(self, fix: bool) -> list[Finding]:
        """Every property of the sandbox, tried. `fix` builds the own image and pulls others first where missing."""
        if fix:
            self.place.fetch()
        _ = self.place.mounts, self.place.services
        if not self.config.sandbox.made:
            return self.engine.doctor(self.place.named(self.config.sandbox.image))
        with self._closing(Unrecorded()) as stage:
            stage.prepare(self.repository.fetch(self.source, self.config.project.base))
            return self.engine.doctor(stage.image)

    def verify(self) -> list[str]:
        """What does not hold of the log, measured by itself and by the roots in delivered commits."""
        points, form = [], f"--format=- %(contents:trailers:key={AUDIT_TRAILER},valueonly,separator=%00)"
        for line in self.repository.git.run("for-each-ref", form, DELIVERED).decode("ascii", "replace").splitlines():
            size, _, root = line[2:].partition(" ")
            points.append((int(size) if size.isdigit() else 0, root))
        return self.audit.verify(points)


def new_run() -> str:
    """A run's id: short, lower case, not guessable."""
    return "r" + secrets.token_hex(5)


def known_secrets(config: Config) -> dict[str, str]:
    """Name and value of every key the configuration names, for the redactor alone."""
    names = {route.api_key_env for route in config.routes.values() if route.api_key_env}
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def private_folder(path: Path) -> Path:
    """The state folder, 0700, with an ignore file of its own so that the project's git sees nothing of it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    ignore = path / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return path
