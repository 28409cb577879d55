"""What of a devcontainer.json holds here: its image or build, its set-up commands, its variables by allow-list.

Anything that would open the container (mounts, arguments of the engine, privileges), run on the host, or need another
tool (features, compose) is refused by name: leaving it out in silence would give another environment than it says.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_harness.errors import ConfigError

COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
USED = {"image", "build", "containerEnv", *COMMANDS}
HARMLESS = {
    *("$schema", "name", "customizations", "forwardPorts", "portsAttributes", "otherPortsAttributes", "waitFor"),
    *("remoteUser", "containerUser", "updateRemoteUserUID", "userEnvProbe", "hostRequirements"),
    *("overrideCommand", "shutdownAction", "postStartCommand", "postAttachCommand", "workspaceFolder", "init"),
}
"""Said for editors and people, or of a container that lives on; nothing a command here could miss."""
REFUSED = {
    "features": "features are installed by another tool; put what they install into the image or the set-up",
    "dockerComposeFile": "compose is not read; declare the servers as [services.NAME]",
    "mounts": "mounts are declared in the harness's own configuration, as sandbox.mounts",
    "workspaceMount": "the workspace is always the harness's own checkout",
    "runArgs": "no argument reaches the engine from a repository",
    "privileged": "no sandbox is privileged",
    "capAdd": "no sandbox has capabilities",
    "securityOpt": "the sandbox's profile is not a repository's to change",
    "initializeCommand": "it would run on the host",
}
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[\]}])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Devcontainer:
    """What one says. `dockerfile` and `context` are paths in the repository."""

    image: str = ""
    dockerfile: str = ""
    context: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    commands: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    """Variables that the allow-list does not name."""


def read(raw: bytes, path: str, allowed: Sequence[str]) -> Devcontainer:
    """Read one. `path` is its own in the repository. Raises ConfigError."""
    try:
        text = _TOKEN.sub(lambda found: found[0] if found[0][0] == '"' else "", raw.decode("utf-8-sig"))
        data = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise ConfigError(f"{path} cannot be read as JSON", why=str(fault)[:200]) from fault
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not an object")
    for key in data:
        if key not in USED | HARMLESS and data[key] not in (False, None, [], {}):
            raise ConfigError(f"{path}: {key} is refused", why=REFUSED.get(key, "the harness does not know it"))
    if ("image" in data) == ("build" in data):
        raise ConfigError(f"{path} has to name either image or build")
    found = _strings(data.get("containerEnv", {}), path, "containerEnv")
    rest = Devcontainer(
        commands=tuple(command for key in COMMANDS for command in _commands(data.get(key), path, key)),
        env={name: value for name, value in found.items() if name in allowed},
        left_out=tuple(name for name in found if name not in allowed),
    )
    if "image" in data:
        return replace(rest, image=_text(data["image"], path, "image"))
    build = data["build"]
    if not isinstance(build, dict) or not {"dockerfile"} <= set(build) <= {"dockerfile", "context", "args", "target"}:
        raise ConfigError(f"{path}: build", why="it has to have dockerfile, and may have context, args and target")
    here = posixpath.dirname(path)
    file, context = _text(build["dockerfile"], path, "dockerfile"), _text(build.get("context", "."), path, "context")
    return replace(
        rest,
        dockerfile=posixpath.normpath(posixpath.join(here, file)),
        context=posixpath.normpath(posixpath.join(here, context)),
        args=_strings(build.get("args", {}), path, "build.args"),
        target=_text(build.get("target", ""), path, "build.target"),
    )


def _text(value: object, path: str, key: str) -> str:
    """A text without variables: `${localEnv:...}` would take something of the host inside."""
    if not isinstance(value, str) or "${" in value or "\0" in value:
        raise ConfigError(f"{path}: {key}", why="it has to be a text without ${...}")
    return value


def _strings(value: object, path: str, key: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {key}", why="it has to be an object")
    return {name: _text(one, path, f"{key}.{name}") for name, one in value.items()}


def _commands(value: Any, path: str, key: str) -> Iterator[str]:
    """A text for a shell, a list of words, or an object of either."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _commands(one, path, key)
    elif isinstance(value, list):
        yield shlex.join(_text(word, path, key) for word in value)
    elif value:
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {key}", why="it has to be a text, a list or an object")
        yield value
