"""Dependencies on items that are not queued yet, and the answers that items ended in."""

import sqlalchemy as sa
from alembic import op

from agent_harness.store.tables import numbers, texts

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "wanted",
        *texts("item", "key"),
        *numbers("ordinal", big=False),
        sa.PrimaryKeyConstraint("item", "key", name="pk_wanted"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_wanted_item_item"),
    )
    op.create_index("ix_wanted_key", "wanted", ["key"])
    op.create_table(
        "answer",
        *texts("item", "digest"),
        sa.PrimaryKeyConstraint("item", name="pk_answer"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_answer_item_item"),
    )
