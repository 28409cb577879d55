"""The first schema, where every upgrade starts. Nothing is made here: an empty database is laid out from `tables.py`,
and the tests keep this schema as SQL."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing comes before it."""
