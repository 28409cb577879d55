"""What an item is delivered as, and what it was imported from."""

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    pass
