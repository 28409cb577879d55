"""What a project's own file takes from this machine, and whether whoever works here has allowed it.

A configuration comes with a clone, so it may be anybody's. What it says of its own repository needs no leave; what it
takes from the machine (keys, folders, the network, devices) does, once for each folder. Flags, environment variables
and the user's own file are the user's word already.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from agent_harness.config import layers
from agent_harness.config.load import Loaded
from agent_harness.config.shape import Config, Sandbox, dotted, remote
from agent_harness.errors import ConfigError
from agent_harness.types import canonical, digest, endpoint

VARIABLE = "AGENT_HARNESS_TRUST"
"""Set to 1, all is allowed: for CI, where the environment's owner chooses which commit configures."""
_MODEL = re.compile(r"([\w-]+)/(?!arn:)[\w.:@+-]+(?:/[\w.:@+-]+)*")
"""A model's name with its provider's, and with nothing in it that a client could take for an address."""
Own = Callable[[str], bool]


def taken(loaded: Loaded) -> Iterator[str]:
    """Each fact for people, in order."""
    config, root = loaded.config, loaded.root.resolve()
    file = layers.near(loaded.file) if loaded.file else ""

    def own(key: str) -> bool:
        return config.origin(key) == file

    def outside(path: Path) -> Iterator[Path]:
        """Where a path leads, if that is no part of the project."""
        shown = (root / path.expanduser()).resolve()
        if not shown.is_relative_to(root):
            yield shown

    yield from _keys(config, own)
    for mount in config.sandbox.mounts if own("sandbox.mounts") else ():
        written = "" if mount.read_only else ", to be written"
        yield from (f"the folder {shown}{written} (sandbox.mounts)" for shown in outside(Path(mount.source)))
    yield from _machine(config.sandbox, own)
    if own("project.source"):
        source = config.source(root)
        places = [source] if remote(config.project.source) else outside(Path(source))
        yield from (f"the repository {shown} (project.source)" for shown in places)
    # a clone may bring a link along in place of the usual folder
    if own("state.dir") or config.origin("state.dir") == "default":
        yield from (f"the folder {shown}, to be written (state.dir)" for shown in outside(config.state_dir(root)))
    if own("state.db"):
        scheme, _, path = config.database(root).partition(":///")
        places = outside(Path(path)) if scheme == "sqlite" else [config.state.db or ""]
        yield from (f"the database {shown} (state.db)" for shown in places)


def _keys(config: Config, own: Own) -> Iterator[str]:
    for name, route in config.routes.items():
        at, key = dotted("routes", name), route.api_key_env
        what = f"the key in {key}" if key else "its provider's own credentials"
        if route.base_url:
            if own(f"{at}.base_url") and not _local(route.base_url):
                yield f"{what}, for {route.base_url} ({at})"
        elif (own(f"{at}.model") or own(f"{at}.api_key_env")) and not _usual(route.model, key):
            yield f"{what}, for the provider of {route.model} ({at})"


def _machine(sandbox: Sandbox, own: Own) -> Iterator[str]:
    for name in ("network", "setup_network"):
        if own(f"sandbox.{name}") and getattr(sandbox, name) == "full":
            yield f"all that this machine reaches by network (sandbox.{name})"
    for name in ("allow", "setup_allow"):
        for place in getattr(sandbox, name) if own(f"sandbox.{name}") else ():
            with suppress(ValueError):  # a name never leads to a private address
                yield f"the network address {ipaddress.ip_address(endpoint(place)[0])} (sandbox.{name})"
    for name in ("gpus", "runtime"):
        if own(f"sandbox.{name}"):
            yield f"the engine's {name} {getattr(sandbox, name)} (sandbox.{name})"


def _local(url: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port  # a port that is none is an address that clients read differently
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def _usual(model: str, key: str | None) -> bool:
    """Whether a provider gets its own key, by the variable's name; the harness's own variable is for any."""
    found, stem = _MODEL.fullmatch(model), (key or "").removesuffix("_API_KEY").replace("_", "")
    provider = re.sub("[_-]", "", found[1]).upper() if found else ""
    return bool(provider) and (key in {None, "AGENT_HARNESS_API_KEY"} or (stem != "" and provider.startswith(stem)))


def need(loaded: Loaded, how: str = "agent-harness trust") -> None:
    """Raises ConfigError where a project takes what is not allowed here. `how` is the command that allows it."""
    facts = list(taken(loaded))
    if facts and os.environ.get(VARIABLE) != "1" and not _kept(loaded, facts).is_file():
        raise ConfigError(
            f"{layers.near(loaded.file or loaded.root)} takes from this machine what was not allowed here yet",
            why="; ".join(facts),
            next=f"if you trust whoever wrote it: {how}",
        )


def allow(loaded: Loaded) -> list[str]:
    """Allow all that a project takes, from now on, in its folder; returns it. Raises OSError."""
    if facts := list(taken(loaded)):
        kept = _kept(loaded, facts)
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept.touch()
    return facts


def _kept(loaded: Loaded, facts: list[str]) -> Path:
    """The file that says that just these facts are allowed in this folder: a folder of the home, and later the network,
    are less than both at once."""
    folder = layers.user_folder(os.environ, "XDG_STATE_HOME", ".local/state") or Path(os.devnull)
    return folder / "trusted" / digest(canonical([str(loaded.root.resolve()), *facts]))[7:]
