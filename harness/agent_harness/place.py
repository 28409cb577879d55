"""What every sandbox of a project stands on: the image, the folders it shows, the servers beside it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_harness.config import Config
from agent_harness.logs import logger
from agent_harness.mounts import declared
from agent_harness.ports import SandboxEngine
from agent_harness.stage import Shape
from agent_harness.types import ImagePlan, Mount, Service


class Place:
    """Looked up once each, when first asked for. `plugin` finds what an installed distribution offers."""

    def __init__(
        self, config: Config, state: Path, source: str, *, engine: SandboxEngine, plugin: Callable[[str, str], Any]
    ) -> None:
        self._config, self._state, self._source = config, state, source
        self._engine, self._plugin = engine, plugin

    @cached_property
    def image(self) -> str:
        """The content id of the named sandbox image; empty where a file of the repository makes it. Raises
        SandboxUnavailable."""
        sandbox = self._config.sandbox
        made = sandbox.dockerfile or sandbox.devcontainer
        return "" if made else self._engine.image_id(self.named(sandbox.image))

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """The folders that the project shows inside. Raises UsageError for one that it may not."""
        return declared(self._config.sandbox.mounts, state=self._state, source=self._source)

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """The servers beside every sandbox, their images by content id. Raises SandboxUnavailable."""
        return tuple(
            Service(name, self._engine.image_id(self.named(s.image)), s.env, s.command, s.health or "", s.ports)
            for name, s in self._config.services.items()
        )

    def named(self, image: str) -> str:
        """An image's reference; `own` is the harness's own."""
        return str(self._plugin("image", "own")) if image == "own" else image

    def check(self) -> None:
        """Raises what stands in the way of a run, before an item is touched."""
        _ = self.image, self.mounts, self.services

    def shape(self, user: tuple[int, int], labels: dict[str, str]) -> Shape:
        """What every sandbox of a run has in common."""
        sandbox = self._config.sandbox
        return Shape(sandbox, self.image, user, labels, self._state, mounts=self.mounts, services=self.services)

    def fetch(self) -> None:
        """Build the own image and pull the others, where they are missing."""
        sandbox, say = self._config.sandbox, logger().warning
        named = [] if sandbox.dockerfile or sandbox.devcontainer else [sandbox.image]
        for image in dict.fromkeys([*named, *(one.image for one in self._config.services.values())]):
            if image == "own":
                self._plugin("image", "ensure")(say)
            else:
                self._engine.prepare(ImagePlan("", reference=image, fetch=True), say, lambda: False)
