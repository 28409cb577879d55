"""A real store, log and queue in a temporary file, on a clock that the test owns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_harness.audit import AuditLog
from agent_harness.queue import Queue
from agent_harness.redact import Redactor
from agent_harness.store import Store
from agent_harness.types import Claim, Item, NewItem
from fakes.clock import FakeClock

SECRET = "hunter2-hunter2"


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A temporary folder in memory where there is one: every commit waits for its disk."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@dataclass
class Desk:
    store: Store
    clock: Any
    audit: AuditLog
    queue: Queue

    @classmethod
    def open(cls, url: str, clock: Any = None, **queue: Any) -> Desk:
        clock = clock or FakeClock()
        store = Store.open(url)
        audit = AuditLog(store, clock, Redactor({"PASSWORD": SECRET}))
        return cls(store, clock, audit, Queue(store, audit, clock, **queue))

    @classmethod
    def at(cls, folder: Path, **queue: Any) -> Desk:
        return cls.open(f"sqlite:///{folder / 'store.db'}", **queue)

    def add(self, id: str, **fields: Any) -> Item:
        return self.queue.add(NewItem(title=fields.pop("title", id), brief="do it", id=id, **fields))[0]

    def claim(self, **options: Any) -> Claim:
        claim = self.queue.claim("elsewhere/boot/1/1/x", "run-1", **options)
        assert claim is not None
        return claim

    def moves(self, item: str) -> list[tuple[str, str]]:
        """The states that the log says an item went through."""
        return [(e.data["old"], e.data["new"]) for e in self.audit.events(item=item, kinds=["item.state"])]
