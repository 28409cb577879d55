"""What stands around one sandbox and goes with it: the proxy of its allow list, the
interpreter that its image lacks, and the servers beside it.

A service is a container in the sandbox's own network namespace. With network `none` both have nothing but the same
loopback: there is no network that they could reach anything else by, and no gateway with the host's ports on it.
Every sandbox has servers of its own, so that nothing written to one by a candidate is there when it is judged.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_harness.errors import SandboxUnavailable
from agent_harness.types import Mount, SandboxSpec, Service
from agent_harness_sandbox import policy
from agent_harness_sandbox.egress import Egress
from agent_harness_sandbox.lent import lend

HEALTHY_S = 90.0

Find = Callable[[str], tuple[str, dict[str, Any]]]
"""An image's content id and its configuration. Raises SandboxUnavailable."""


class Surroundings:
    """Made before the sandbox, closed after it. `spec` is the sandbox's own, with what leads to these."""

    def __init__(self, spec: SandboxSpec, *, python: bool) -> None:
        """`python`: the image has none, and is lent one."""
        beside = Path(spec.mounts[0].source).parent  # the run's own folder, removed with it
        self._denied, self._made, shown = spec.denied, list[str](), list[Mount]()
        self._python = lend(beside) if python else None
        self._egress = Egress(spec.allow, beside, spec.uid, spec.gid) if spec.allow else None
        for folder, place in ((self._python, policy.LENT), (self._egress and self._egress.folder, policy.WAY)):
            shown += [Mount(str(folder), place, read_only=True)] if folder else []
        self.spec = replace(spec, mounts=(*spec.mounts, *shown))

    def tell(self) -> None:
        """Hand on what the proxy refused since the last time."""
        for one in self._egress.denied() if self._egress is not None else ():
            if self._denied is not None:
                self._denied(one)

    def begin(self, api: Any, sandbox: str, find: Find, listening: Callable[[int], bool]) -> None:
        """Start the services in the running sandbox's network and wait until each answers.

        `listening` says whether a port of the sandbox's loopback accepts. Raises SandboxUnavailable."""
        wanted = {f"{sandbox}-{service.name}": service for service in self.spec.services}
        for name, service in wanted.items():
            image_id, config = find(service.image)
            self._made.append(name)
            api.create_container_from_config(service_body(self.spec, service, sandbox, image_id, config), name)
            api.start(name)
        until = time.monotonic() + HEALTHY_S
        for name, service in wanted.items():
            while not self._healthy(api, name, service, listening):
                if time.monotonic() > until:
                    raise _sick(api, name, service, f"not healthy after {HEALTHY_S:g} s")
                time.sleep(0.2)

    @staticmethod
    def _healthy(api: Any, name: str, service: Service, listening: Callable[[int], bool]) -> bool:
        state = api.inspect_container(name)["State"]
        if not state.get("Running"):
            raise _sick(api, name, service, f"it ended with exit code {state.get('ExitCode')}")
        if service.health:
            probe = api.exec_create(name, ["sh", "-c", service.health])["Id"]
            api.exec_start(probe)
            if api.exec_inspect(probe).get("ExitCode") != 0:
                return False
        return all(map(listening, service.ports))

    def close(self, remove: Callable[[str], None]) -> None:
        """Take all of it away; safe to repeat."""
        try:
            while self._made:
                remove(self._made[-1])
                self._made.pop()
        finally:
            if self._egress is not None:
                self._egress.close()
            if self._python is not None:
                shutil.rmtree(self._python, ignore_errors=True)


def service_body(
    spec: SandboxSpec, service: Service, sandbox: str, image_id: str, config: dict[str, Any]
) -> dict[str, Any]:
    """The engine's create request for a service. Its data is in memory: the image's volumes become tmpfs."""
    volumes = sorted({"/tmp", *(config.get("Volumes") or {})})  # noqa: S108
    mounts = [{"Type": "tmpfs", "Target": one, "TmpfsOptions": {"SizeBytes": spec.tmp_size}} for one in volumes]
    host = confined(f"container:{sandbox}", spec.memory, spec.cpus, spec.pids, mounts)
    return {
        "Image": image_id,
        "Env": [f"{name}={value}" for name, value in sorted(service.env.items())],
        **({"Cmd": list(service.command)} if service.command else {}),
        "Labels": {**spec.labels, "agent-harness.service": service.name},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host | ({"Runtime": spec.runtime} if spec.runtime else {}),
    }


def confined(*settings: Any) -> dict[str, Any]:
    """Host settings of the containers that are not sandboxes (services, set-ups): root inside and a writable root file
    system, for the usual images need them, but little to do harm with. `settings` are those of `policy.common`."""
    return {
        **policy.common(*settings),
        "CapAdd": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "4m", "max-file": "1"}},
    }


def _sick(api: Any, name: str, service: Service, why: str) -> SandboxUnavailable:
    said = api.logs(name, tail=5).decode("utf-8", "replace").strip().splitlines()
    return SandboxUnavailable(
        f"the service {service.name} does not work",
        why=f"{why} ({' | '.join(said)[-300:]})" if said else why,
        next=f"see its image, command and health in [services.{service.name}]",
    )
