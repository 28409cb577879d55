"""Ceilings that hold across the workers of one store."""

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    pass
