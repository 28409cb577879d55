"""Stored verdicts: what the same inputs are answered with, and what later rounds compare with."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "verdict",
        *[sa.Column(name, sa.Text(), nullable=False) for name in ("key", "target", "head")],
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_verdict"),
    )
    op.create_index("ix_verdict_target_at_ms", "verdict", ["target", "at_ms"])
