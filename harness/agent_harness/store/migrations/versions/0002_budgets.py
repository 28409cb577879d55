"""Ceilings that hold across the workers of one store."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_SPEND = ("steps", "tokens", "nanousd")


def upgrade() -> None:
    op.create_table("budget", *_texts("scope", "period"), *_numbers(*_SPEND, "ms"), _key("budget", "scope", "period"))
    names = [sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False)]
    names += [*_texts("item", "period", "worker", "run"), *_numbers(*_SPEND, "at_ms")]
    op.create_table("reservation", *names, _key("reservation", "id"))


def _texts(*names):
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _numbers(*names):
    return [sa.Column(name, sa.BigInteger(), nullable=False) for name in names]


def _key(table, *names):
    return sa.PrimaryKeyConstraint(*names, name=f"pk_{table}")
