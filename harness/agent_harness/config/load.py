"""Loading: defaults < user file < project < environment < flags, then one frozen object."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent_harness.config import layers
from agent_harness.config.known import Path_, spelled, unknown
from agent_harness.config.shape import Config
from agent_harness.errors import ConfigError, CredentialError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, the folder its relative paths start from, and the project's file if there is one."""

    config: Config
    root: Path
    file: Path | None


def load(
    start: Path,
    *,
    env: Mapping[str, str] | None = None,
    sets: Sequence[str] = (),
    db: str | None = None,
    read: layers.Reader = layers.read_file,
) -> Loaded:
    """The effective configuration of the project around `start`. Raises ConfigError, one line.

    `read` reads the project's file: another commit's version of it can be put in its place."""
    env = os.environ if env is None else env
    start = start.absolute()
    found = layers.find_project(start, read)
    merged: layers.Leaves = {}
    folder = layers.user_folder(env, "XDG_CONFIG_HOME", ".config")
    if folder and (raw := layers.read_file(user := folder / "config.toml")) is not None:
        merge(merged, layers.file_leaves(layers.parse(raw, user), user))
    if found.file is not None and found.data is not None:
        merge(merged, layers.file_leaves(found.data, found.file))
    merge(merged, layers.env_leaves(env, merged))
    merge(merged, layers.flag_leaves(sets, db))
    return Loaded(build(merged), found.root, found.file)


def merge(below: layers.Leaves, above: layers.Leaves) -> None:
    """Put a layer on top. A leaf takes the place of the same leaf and of all below it; lists are replaced whole."""
    for key, leaf in above.items():
        if leaf.value != {}:
            for other in [one for one in below if one[: len(key)] == key]:
                del below[other]
        below[key] = leaf


def build(merged: layers.Leaves) -> Config:
    """Validate the merged leaves."""
    try:
        config = Config.of(layers.nested(merged), {spelled(key): leaf.origin for key, leaf in merged.items()})
    except ValidationError as error:
        raise refused(error, merged) from None
    for role, settings in config.roles.items():
        for route in settings.routes or ():
            if route not in config.routes:
                key = ("roles", role, "routes")
                raise ConfigError(
                    f"{origin_of(key, merged)}: {spelled(key)} names the route {route!r}, which is not configured",
                    next=did_you_mean(route, config.routes) or f"add {route_line(route)}",
                )
    return config


def refused(error: ValidationError, merged: layers.Leaves) -> ConfigError:
    """The first thing that is wrong, an unknown key before all else, with its origin and key; how many more there
    are."""
    found = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    first = found[0]
    key = tuple(str(part) for part in first["loc"])
    where, what = origin_of(key, merged), spelled(key)
    if first["type"] == "extra_forbidden":
        return unknown(key, where)
    if key[-1] == "[key]":
        what = f"a name in [{spelled(key[:-2])}]"
    if first["type"] == "value_error":
        why = str(first.get("ctx", {}).get("error", first["msg"]))
    else:
        why = "is missing" if first["type"] == "missing" else "must be a table"
    return ConfigError(f"{where}: {what} {why}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))


def origin_of(key: Path_, merged: layers.Leaves) -> str:
    """Where a key, or what is nearest to it, was given."""
    for length in range(len(key), 0, -1):
        for other in reversed(merged):
            if other[:length] == key[:length] or key[: len(other)] == other:
                return merged[other].origin
    return "configuration"


def check_ready(config: Config, role: str, env: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError where a role has no route, CredentialError where a route's key is not in the environment."""
    env = os.environ if env is None else env
    names = config.routes_of(role)
    if not names:
        marks = "uncomment [routes.main] in harness.toml, as `agent-harness init` writes it, or "
        line = chain_line(role, config) if config.routes else route_line("main")
        raise ConfigError(
            f"no model route for the role {role}",
            why="several routes are configured and the role names none" if config.routes else "none is configured",
            next=f"{'' if config.routes else marks}add at the top of harness.toml: {line}",
        )
    for name in names:
        variable = config.routes[name].api_key_env
        if variable and not env.get(variable, "").strip():
            raise CredentialError(
                f"the environment variable {variable} is not set",
                why=f"the route {name} of the role {role} takes its key from it",
                next=f"export {variable}=... and run again",
            )


def route_line(name: str) -> str:
    """A line of TOML that configures a route, to be filled in."""
    return f'routes.{name} = {{model = "PROVIDER/MODEL", api_key_env = "NAME_OF_THE_KEY_VARIABLE"}}'


def chain_line(role: str, config: Config) -> str:
    """The line of TOML that names a role's routes, with the first there is."""
    return f'roles.{role}.routes = ["{next(iter(config.routes))}"]'


def did_you_mean(name: str, names: Mapping[str, object]) -> str:
    """The nearest of some names as a question, or nothing."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
