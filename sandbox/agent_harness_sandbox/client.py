"""One connection to the Docker engine the user's own `docker` command would use. docker-py is imported late."""

from __future__ import annotations

import os
from typing import Any

from agent_harness.errors import SandboxUnavailable

INSTALL = "install and start a Docker engine (`apt-get install docker.io`), or name one (podman's, too) in DOCKER_HOST"
ALLOW = "let this user use the engine's socket (`usermod -aG docker USER`, then log in again)"


def connect(timeout_s: int = 60) -> Any:  # docker.DockerClient
    """A fresh client that answered a ping. Raises SandboxUnavailable with what to do.

    DOCKER_HOST wins, then the current docker context, then the default socket. A client is not thread safe:
    every sandbox takes its own. `timeout_s` bounds one silence of the API, never a command."""
    import docker
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env

    from agent_harness_sandbox import podman  # it names its files by what stands on this module

    where, arguments = _endpoint(docker)
    try:
        client: Any = docker.DockerClient(**(arguments or kwargs_from_env()), timeout=timeout_s)
        answer = client.api.get(f"{client.api.base_url}/_ping", timeout=timeout_s)
        answer.raise_for_status()
    except (DockerException, OSError) as fault:
        why = plain(fault)
        advice = ALLOW if "ermission" in why else INSTALL
        raise SandboxUnavailable(f"no Docker engine answers at {where}", why=why, next=advice) from fault
    if podman.SIGN in answer.headers:
        client.api = podman.Podman(client.api)
    return client


def _endpoint(docker: Any) -> tuple[str, dict[str, Any]]:
    """Where the engine is, for people, and what reaches it (nothing: what the environment says)."""
    if host := os.environ.get("DOCKER_HOST"):
        return host, {}
    name = os.environ.get("DOCKER_CONTEXT")
    context = docker.ContextAPI.get_context(name)
    if context is None:
        raise SandboxUnavailable(
            f"the docker context {name or 'in use'} does not exist", next="see `docker context ls`"
        )
    if context.name == "default":
        return "the default socket", {}
    return f"{context.Host} (docker context {context.name})", {
        "base_url": context.Host,
        "tls": context.TLSConfig or False,
    }


def plain(fault: BaseException) -> str:
    """What the engine says of it, else the innermost cause, for the layers above only repeat it; in one line."""
    if said := getattr(fault, "explanation", None) or getattr(fault, "line", None):
        return " ".join(str(said).split())[:400]
    seen: BaseException = fault
    while (inner := seen.__cause__ or seen.__context__) is not None:
        seen = inner
    return f"{type(seen).__name__}: {seen}"[:300]
