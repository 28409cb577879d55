"""One connection to the Docker engine the user's own `docker` command would use. docker-py is imported late."""

from __future__ import annotations

import os
from typing import Any

from agent_harness.errors import SandboxUnavailable

INSTALL = "install and start a Docker engine (`apt-get install docker.io`), or name a running one in DOCKER_HOST"


def connect(timeout_s: float = 60.0) -> Any:  # docker.DockerClient
    """A fresh client that answered a ping. Raises SandboxUnavailable with what to do.

    DOCKER_HOST wins, then the current docker context, then the default socket. A client is not thread safe:
    every sandbox takes its own. `timeout_s` bounds one silence of the API, never a command."""
    import docker
    import requests
    from docker.errors import DockerException

    where = "the default socket"
    try:
        client, where = _client(docker, timeout_s)
        client.ping()
    except (DockerException, requests.RequestException, OSError) as fault:
        why = _plain(fault)
        mend = INSTALL
        if "ermission" in why:
            mend = "let this user use the engine's socket (`usermod -aG docker USER`, then log in again)"
        raise SandboxUnavailable(f"no Docker engine answers at {where}", why=why, next=mend) from fault
    return client


def _client(docker: Any, timeout_s: float) -> tuple[Any, str]:
    """A client and the name of where it points to."""
    if host := os.environ.get("DOCKER_HOST"):
        return docker.from_env(timeout=timeout_s), host
    name = os.environ.get("DOCKER_CONTEXT")
    context = docker.ContextAPI.get_context(name)
    if context is None:
        raise SandboxUnavailable(f"the docker context {name!r} does not exist", next="see `docker context ls`")
    if context.name == "default":
        return docker.from_env(timeout=timeout_s), "the default socket"
    tls = context.TLSConfig
    client = docker.DockerClient(base_url=context.Host, tls=tls or False, timeout=timeout_s, version="auto")
    return client, f"{context.Host} (docker context {context.name})"


def _plain(fault: BaseException) -> str:
    """The innermost cause in one line: the layers above only repeat it."""
    seen: BaseException = fault
    while (inner := seen.__cause__ or seen.__context__) is not None:
        seen = inner
    return f"{type(seen).__name__}: {seen}"[:300]
