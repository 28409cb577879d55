"""The sections of the configuration and their defaults: one frozen object that says what every key means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, PlainValidator, PrivateAttr, model_validator

from agent_harness.config import values
from agent_harness.guard.rules import RULES
from agent_harness.types import NANO, Check, Limits, Mount, canonical, digest

Whole: TypeAlias = Annotated[int, PlainValidator(values.whole)]
Count: TypeAlias = Annotated[int, PlainValidator(values.count)]
Number: TypeAlias = Annotated[float, PlainValidator(values.number)]
Size: TypeAlias = Annotated[int, PlainValidator(values.size)]
Flag: TypeAlias = Annotated[bool, PlainValidator(values.flag)]
Name: TypeAlias = Annotated[str, PlainValidator(values.name)]
Text: TypeAlias = Annotated[str, PlainValidator(values.text)]
Usd: TypeAlias = Annotated[Decimal, PlainValidator(values.usd_price)]
UsdCeiling: TypeAlias = Annotated[Decimal, PlainValidator(values.usd_ceiling)]
Globs: TypeAlias = Annotated[tuple[str, ...], PlainValidator(values.each(values.glob))]
Names: TypeAlias = Annotated[tuple[str, ...], PlainValidator(values.names)]
Protocol: TypeAlias = Annotated[str, PlainValidator(values.one_of("tools", "text"))]

Texts: TypeAlias = Annotated[tuple[str, ...], PlainValidator(values.each(values.text))]
Places: TypeAlias = Annotated[tuple[str, ...], PlainValidator(values.each(values.place))]
Network: TypeAlias = Annotated[str, PlainValidator(values.one_of("none", "full"))]

CACHES = ("pip", "npm", "cargo", "go")
MANIFESTS = (
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "uv.lock", "poetry.lock", "Pipfile.lock"),
    *("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.toml", "Cargo.lock"),
    *("go.mod", "go.sum", "Gemfile", "Gemfile.lock", "pom.xml", "build.gradle"),
)

PROTECTED = (
    *("harness.toml", "**/harness.toml", ".harness/**", ".agent-harness/**"),
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".circleci/**"),
    *(".ci/**", "azure-pipelines.yml", "bitbucket-pipelines.yml", "Jenkinsfile"),
)


class Section(BaseModel):
    """A table of the configuration. Nothing else than these keys, and no change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Project(Section):
    """What is worked on, and what judges it."""

    source: Text = "."
    """Path (from the configuration's folder) or URL of the git repository."""
    base: Text = "HEAD"
    """Commit, branch or tag that work starts from."""
    checks: Annotated[tuple[Check, ...], PlainValidator(values.each(values.check))] = ()
    """Commands that a candidate must pass."""


class Policy(Section):
    """What no change may do."""

    protected: Globs = PROTECTED
    """Paths that may be neither added, changed nor deleted."""
    keep: Globs = ()
    """Paths whose existing files may be neither changed nor deleted; new ones may be added."""
    max_files: Whole = 200
    max_bytes: Size = 2_000_000
    """Of all changed files of one change."""
    max_file_bytes: Size = 1_000_000
    allow_binary: Flag = False


class Sandbox(Section):
    """The container that commands run in. Sizes are bytes, or a number with k, m or g."""

    image: Text = "own"
    """`own` is the small image that `doctor --fix` builds; else a reference that the engine has."""
    dockerfile: Text | None = None
    """Path in the repository: the image is built from the base commit's version of it, in place of `image`."""
    devcontainer: Text | None = None
    """Path in the repository of a devcontainer.json, in place of `image`; what it may ask for is in the manual."""
    devcontainer_env: Names | None = None
    """Its variables that are taken over."""
    setup: Texts = ()
    """Commands run once, as root, on a checkout of the base; what they leave outside /workspace is the image."""
    setup_files: Globs = MANIFESTS
    """When one of these changes, the set-up is run anew."""
    setup_network: Network = "none"
    """Of the set-up and of a build."""
    setup_allow: Places = ()
    """Of the set-up alone, as `allow` is of the commands."""
    setup_timeout_s: Number = 1800.0
    """Longest time of a build, and of a set-up."""
    memory: Size = 2 << 30
    cpus: Number = 2.0
    pids: Whole = 512
    tmp_size: Size = 512 << 20
    network: Network = "none"
    """`full` is all that the engine's default network reaches, this machine's ports included."""
    allow: Places = ()
    """`host:port` pairs that are reached through the harness's own proxy while the network stays none."""
    pool: Count = 0
    """So many sandboxes are kept started ahead while items are run."""
    mounts: Annotated[tuple[Mount, ...], PlainValidator(values.each(values.mount))] = ()
    """Folders shown inside. A writable one is there for the implementer alone: what judges never sees it."""
    caches: Annotated[tuple[str, ...], PlainValidator(values.each(values.one_of(*CACHES)))] = ()
    """Package caches of this project: the set-up fills them, everything else only reads them."""
    gpus: Annotated[str, PlainValidator(values.gpus)] | None = None
    """`all`, or how many."""
    runtime: Text | None = None
    """A container runtime of the engine, such as `runsc`; the engine's default where absent."""
    timeout_s: Number | None = None
    """Longest time of one command of a role; the role's own where absent. Checks have their own."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.image != "own") + (self.dockerfile is not None) + (self.devcontainer is not None) > 1:
            raise ValueError("names more than one of image, dockerfile and devcontainer")
        if (self.allow and self.network == "full") or (self.setup_allow and self.setup_network == "full"):
            raise ValueError('has an allow list beside the network "full", which needs none')
        return self

    @property
    def made(self) -> bool:
        """Whether the image is made from what the base commit holds."""
        return bool(self.dockerfile or self.devcontainer or self.setup)


class ServiceSettings(Section):
    """A server that checks or roles need: beside every sandbox, on its loopback (as `localhost` and by its name)."""

    image: Text
    env: Annotated[dict[str, str], PlainValidator(values.variables)] = {}
    command: Texts = ()
    health: Text | None = None
    """A shell command inside the service that succeeds once it can be used."""
    ports: Annotated[tuple[int, ...], PlainValidator(values.each(values.port))] = ()
    """Each has to accept a connection before the first command."""


class Ceilings(Section):
    """The ceilings of an item, all its roles and attempts together, until a person retries it; `seconds` of one
    attempt."""

    steps: Whole = 80
    tokens: Whole = 3_000_000
    usd: UsdCeiling = Decimal(5)
    seconds: Number = 3600.0

    @property
    def limits(self) -> Limits:
        """The same, as a budget has them."""
        return Limits(self.steps, self.tokens, nano(self.usd), self.seconds)


class BudgetSettings(Section):
    """The ceilings of all work on this store, by all workers together, per day or month (in UTC) or for ever."""

    per: Annotated[str, PlainValidator(values.one_of("day", "month", "ever"))] = "day"
    steps: Whole = 20_000
    tokens: Whole = 500_000_000
    usd: UsdCeiling = Decimal(200)
    seconds: Number = 864_000.0
    """Of every attempt added up: ten workers around the clock. Added at each call and looked at before the next, so
    workers side by side can pass it by what each does between two calls; the other ceilings are never passed."""

    @property
    def limits(self) -> Limits:
        """The same, as a budget has them."""
        return Limits(self.steps, self.tokens, nano(self.usd), self.seconds)


class RoleSettings(Section):
    """One role's routes, tried in order, and its own ceilings."""

    routes: Names | None = None
    steps: Whole | None = None
    tokens: Whole | None = None
    usd: UsdCeiling | None = None
    seconds: Number | None = None

    def over(self, limits: Limits) -> Limits:
        """A role's own limits with those of this table in their place."""
        nanousd = nano(self.usd) if self.usd else limits.nanousd
        seconds = self.seconds or limits.seconds
        return Limits(self.steps or limits.steps, self.tokens or limits.tokens, nanousd, seconds)


class PriceSettings(Section):
    """US dollars per million tokens."""

    input: Usd
    output: Usd
    cache_read: Usd | None = None
    cache_write: Usd | None = None


class RouteSettings(Section):
    """One way to one model."""

    model: Text
    """As the provider's client names it, `provider/model`."""
    base_url: Annotated[str, PlainValidator(values.web)] | None = None
    api_key_env: Annotated[str, PlainValidator(values.variable)] | None = None
    """Name of the environment variable that holds the key."""
    price: PriceSettings | None = None
    max_output_tokens: Whole = 8192
    timeout_s: Number = 300.0
    history_tokens: Count = 25_000
    """From about so many on, old outputs are elided (0: never); or from half of the model's context, where less."""
    protocol: Protocol = "tools"
    allow_unpriced: Flag = False


class QueueSettings(Section):
    """How often an item is tried. A failure is a no on its merits; a loss is a worker that vanished, or an
    attempt that was paid for and judged nothing."""

    max_failures: Whole = 1
    max_losses: Whole = 3
    claim_ttl_s: Number = 60.0


class ReviewSettings(Section):
    """The read-only reviewer among the gates."""

    enabled: Flag = True
    unread: Globs = ()
    """Files that a pass does not wait for: lock files, vendored and generated code. Every report names what it left."""


class GuardSettings(Section):
    """Screening of the roles' commands before they run: beside the sandbox's boundary, never instead of it."""

    enabled: Flag = True
    refuse: Annotated[tuple[str, ...], PlainValidator(values.each(values.one_of(*RULES)))] = tuple(RULES)
    """Names of the rules in force."""
    allow: Texts = ()
    """Programs let through all the same: shell patterns over their words, such as `git push /tmp/*`."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules in force; none where the guard is off."""
        return self.refuse if self.enabled else ()


class State(Section):
    """Where the queue and the log are."""

    dir: Text = ".harness"
    db: Annotated[str, PlainValidator(values.database)] | None = None
    """Database URL; SQLite in the state folder where absent."""


class Config(Section):
    """The effective configuration. Made by `load`."""

    project: Project = Project()
    policy: Policy = Policy()
    sandbox: Sandbox = Sandbox()
    services: dict[Name, ServiceSettings] = {}
    limits: Ceilings = Ceilings()
    budget: BudgetSettings = BudgetSettings()
    roles: dict[Name, RoleSettings] = {}
    routes: dict[Name, RouteSettings] = {}
    queue: QueueSettings = QueueSettings()
    review: ReviewSettings = ReviewSettings()
    guard: GuardSettings = GuardSettings()
    state: State = State()

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
        """Validate nested tables. Raises pydantic's ValidationError."""
        config = cls.model_validate(data)
        config._origins = dict(origins)  # noqa: SLF001 - its own
        return config

    def origin(self, key: str) -> str:
        """Where a leaf's value comes from: `default`, a file, an environment variable or a flag."""
        return self._origins.get(key, "default")

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every key and its value as plain data, in order; passwords in URLs are masked."""
        yield from leaves(plain(self), "")

    @property
    def digest(self) -> str:
        """Digest of the effective values, wherever they come from."""
        return digest(canonical(plain(self)))

    def role(self, name: str) -> RoleSettings:
        """A role's settings; the defaults where it has none."""
        return self.roles.get(name) or RoleSettings()

    def routes_of(self, role: str) -> tuple[str, ...]:
        """A role's routes in order. Where it names none, and there is only one route, that is it."""
        named = self.role(role).routes
        if named is None:
            return tuple(self.routes) if len(self.routes) == 1 else ()
        return named

    def source(self, root: Path) -> str:
        """The repository: an absolute path, or the URL as it is."""
        return self.project.source if remote(self.project.source) else str(placed(root, self.project.source))

    def state_dir(self, root: Path) -> Path:
        """The state folder, absolute."""
        return placed(root, self.state.dir)

    def database(self, root: Path) -> str:
        """The database URL; a relative SQLite path is taken from the configuration's folder."""
        if self.state.db is None:
            return f"sqlite:///{self.state_dir(root) / 'harness.db'}"
        scheme, mark, rest = self.state.db.partition(":///")
        return f"sqlite:///{placed(root, rest)}" if mark and scheme == "sqlite" else self.state.db


def nano(usd: Decimal) -> int:
    """Nano-dollars of a ceiling, rounded down: a ceiling is never passed."""
    return int(usd * NANO)


def remote(source: str) -> bool:
    """Whether a source is a URL or git's `host:path`, not a path of this machine."""
    head, colon, _ = source.partition(":")
    return "://" in source or (bool(colon) and "/" not in head and not Path(source).exists())


def placed(root: Path, path: str) -> Path:
    """A path of the configuration: `~` is the home folder, and a relative one starts at the configuration's folder."""
    return (root / Path(path).expanduser()).absolute()


def plain(value: object) -> Any:
    """Configuration values as JSON has them; passwords in URLs are masked."""
    if isinstance(value, Section):
        return {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mount):
        return {"source": value.source, "target": value.target, "read_only": value.read_only}
    if isinstance(value, Check):
        table = {"run": value.command, "kind": value.kind.value, "timeout_s": value.timeout_s}
        return table | ({"no_worse": True} if value.no_worse else {})
    if isinstance(value, Decimal):
        return f"{value:f}"
    return values.USERINFO.sub("***@", value) if isinstance(value, str) else value


def leaves(value: object, key: str) -> Iterator[tuple[str, Any]]:
    """The leaves below plain data; lists are leaves."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, one in value.items():
        yield from leaves(one, dotted(key, name))


def dotted(key: str, name: str) -> str:
    """`key.name`, the name in quotes where TOML needs them."""
    bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    quoted = name if bare else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{key}.{quoted}" if key else quoted
