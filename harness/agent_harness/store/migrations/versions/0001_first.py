"""The first schema."""

import sqlalchemy as sa
from alembic import op

from agent_harness.store.tables import append_only, numbers, texts

revision = "0001"
down_revision = None

_STATES = "'ready', 'claimed', 'delivering', 'held', 'blocked', 'done', 'failed', 'exhausted', 'cancelled'"
_ACTIVE = sa.text("state IN ('claimed', 'delivering')")
_READY = sa.text("state = 'ready'")


def upgrade() -> None:
    op.create_table(
        "item",
        *texts("id"),
        sa.Column("key", sa.Text()),
        *texts("payload", "state"),
        *numbers("priority", big=False),
        *numbers("position", "not_before_ms", "generation"),
        *texts("token", "run", "worker"),
        *numbers("expires_ms"),
        *numbers("failures", "losses", big=False),
        *texts("reason", "feedback"),
        *numbers("created_ms", "updated_ms"),
        sa.CheckConstraint(f"state IN ({_STATES})", name=op.f("ck_item_state")),
        sa.PrimaryKeyConstraint("id", name="pk_item"),
        sa.UniqueConstraint("key", name="uq_item_key"),
        sa.UniqueConstraint("position", name="uq_item_position"),
    )
    columns = [sa.text("priority DESC"), "not_before_ms", "position"]
    op.create_index("ix_item_claim", "item", columns, sqlite_where=_READY, postgresql_where=_READY)
    op.create_index("ix_item_lease", "item", ["expires_ms"], sqlite_where=_ACTIVE, postgresql_where=_ACTIVE)
    op.create_table(
        "dependency",
        *texts("item", "needs"),
        *numbers("ordinal", big=False),
        sa.PrimaryKeyConstraint("item", "needs", name="pk_dependency"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_dependency_item_item"),
        sa.ForeignKeyConstraint(["needs"], ["item.id"], name="fk_dependency_needs_item"),
    )
    op.create_index("ix_dependency_needs", "dependency", ["needs"])
    op.create_table(
        "attempt",
        *texts("item"),
        *numbers("generation"),
        *texts("token", "run", "worker"),
        *numbers("started_ms"),
        sa.Column("ended_ms", sa.BigInteger()),
        sa.Column("outcome", sa.Text()),
        sa.PrimaryKeyConstraint("item", "generation", name="pk_attempt"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_attempt_item_item"),
    )
    op.create_table(
        "event",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        *numbers("at_ms"),
        *texts("kind", "item", "run", "data"),
        sa.Column("leaf", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_event"),
    )
    op.create_index("ix_event_item_seq", "event", ["item", "seq"])
    op.create_index("ix_event_run_seq", "event", ["run", "seq"])
    op.create_table(
        "blob",
        *texts("digest"),
        *numbers("size"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blob"),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        *numbers("size"),
        *texts("peaks"),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_head_single")),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.execute("INSERT INTO audit_head (id, size, peaks) VALUES (1, 0, '')")
    for table in ("event", "blob"):
        for statement in append_only(table)[op.get_context().dialect.name]:
            op.execute(statement)
