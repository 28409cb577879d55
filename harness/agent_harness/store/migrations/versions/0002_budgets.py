"""Ceilings that hold across the workers of one store."""

import sqlalchemy as sa
from alembic import op

from agent_harness.store.tables import numbers, texts

revision = "0002"
down_revision = "0001"

_SPEND = ("steps", "tokens", "nanousd")


def upgrade() -> None:
    op.create_table(
        "budget",
        *texts("scope", "period"),
        *numbers(*_SPEND, "ms"),
        sa.PrimaryKeyConstraint("scope", "period", name="pk_budget"),
    )
    names = [sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False)]
    names += [*texts("item", "period", "worker", "run"), *numbers(*_SPEND, "at_ms")]
    op.create_table("reservation", *names, sa.PrimaryKeyConstraint("id", name="pk_reservation"))
