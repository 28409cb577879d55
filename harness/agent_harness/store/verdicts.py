"""Verdicts of reviews, kept by the digest of what they depend on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import select

from agent_harness.store.engine import Store
from agent_harness.store.tables import VERDICT
from agent_harness.types import JSON, canonical

_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Remembers reports of reviews as plain data, and gives them back."""

    store: Store

    def recall(self, key: str) -> JSON | None:
        """The report of exactly these inputs."""
        with self.store.read() as tx:
            found = tx.execute(select(VERDICT.c.report).where(VERDICT.c.key == key)).scalar_one_or_none()
        return None if found is None else json.loads(found)

    def remember(self, key: str, target: str, at_ms: int, report: JSON) -> None:
        """Keep a report in place of an earlier one of the same inputs."""
        row = {"key": key, "target": target, "head": report["head"], "at_ms": at_ms, "report": canonical(report)}
        with self.store.write() as tx:
            tx.execute(VERDICT.delete().where(VERDICT.c.key == key))
            tx.execute(VERDICT.insert(), row)

    def earlier(self, target: str) -> list[JSON]:
        """The newest reports of changes to a target, newest first."""
        query = select(VERDICT.c.report).where(VERDICT.c.target == target).order_by(VERDICT.c.at_ms.desc())
        with self.store.read() as tx:
            return [json.loads(one) for one in tx.execute(query.limit(_ROUNDS)).scalars()]
