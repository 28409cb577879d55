"""Stored verdicts: what the same inputs are answered with, and what later rounds compare with."""

import sqlalchemy as sa
from alembic import op

from agent_harness.store.tables import numbers, texts

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "verdict",
        *texts("key", "target", "head"),
        *numbers("at_ms"),
        *texts("report"),
        sa.PrimaryKeyConstraint("key", name="pk_verdict"),
    )
    op.create_index("ix_verdict_target_at_ms", "verdict", ["target", "at_ms"])
