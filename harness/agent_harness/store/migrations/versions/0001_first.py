"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_STATES = "'ready', 'claimed', 'delivering', 'held', 'blocked', 'done', 'failed', 'exhausted', 'cancelled'"
_ACTIVE = sa.text("state IN ('claimed', 'delivering')")
_READY = sa.text("state = 'ready'")


def upgrade() -> None:
    _queue()
    _audit()


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _numbers(*names: str, big: bool = True) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger() if big else sa.Integer(), nullable=False) for name in names]


def _queue() -> None:
    op.create_table(
        "item",
        *_text("id"),
        sa.Column("key", sa.Text()),
        *_text("payload", "state"),
        *_numbers("priority", big=False),
        *_numbers("position", "not_before_ms", "generation"),
        *_text("token", "run", "worker"),
        *_numbers("expires_ms"),
        *_numbers("failures", "losses", big=False),
        *_text("reason", "feedback"),
        *_numbers("created_ms", "updated_ms"),
        sa.CheckConstraint(
            f"state IN ({_STATES})",
            name=op.f("ck_item_state"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_item"),
        sa.UniqueConstraint("key", name="uq_item_key"),
        sa.UniqueConstraint("position", name="uq_item_position"),
    )
    columns = [sa.text("priority DESC"), "not_before_ms", "position"]
    op.create_index("ix_item_claim", "item", columns, sqlite_where=_READY, postgresql_where=_READY)
    op.create_index("ix_item_lease", "item", ["expires_ms"], sqlite_where=_ACTIVE, postgresql_where=_ACTIVE)
    op.create_table(
        "dependency",
        *_text("item", "needs"),
        *_numbers("ordinal", big=False),
        sa.PrimaryKeyConstraint("item", "needs", name="pk_dependency"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_dependency_item_item"),
        sa.ForeignKeyConstraint(["needs"], ["item.id"], name="fk_dependency_needs_item"),
    )
    op.create_index("ix_dependency_needs", "dependency", ["needs"])
    op.create_table(
        "attempt",
        *_text("item"),
        *_numbers("generation"),
        *_text("token", "run", "worker"),
        *_numbers("started_ms"),
        sa.Column("ended_ms", sa.BigInteger()),
        sa.Column("outcome", sa.Text()),
        sa.PrimaryKeyConstraint("item", "generation", name="pk_attempt"),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name="fk_attempt_item_item"),
    )


def _audit() -> None:
    op.create_table(
        "event",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        *_numbers("at_ms"),
        *_text("kind", "item", "run", "data"),
        sa.Column("leaf", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_event"),
    )
    op.create_index("ix_event_item_seq", "event", ["item", "seq"])
    op.create_index("ix_event_run_seq", "event", ["run", "seq"])
    op.create_table(
        "blob",
        *_text("digest"),
        *_numbers("size"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blob"),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        *_numbers("size"),
        *_text("peaks"),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_head_single")),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.execute("INSERT INTO audit_head (id, size, peaks) VALUES (1, 0, '')")
    for table in ("event", "blob"):
        _append_only(table)


def _append_only(table: str) -> None:
    name = f"{table}_append_only"
    if op.get_context().dialect.name == "postgresql":
        raises = f"BEGIN RAISE EXCEPTION '{table} is append-only'; END"
        op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {raises} $$")
        op.execute(f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} EXECUTE FUNCTION {name}()")
        return
    for verb in ("update", "delete"):
        raises = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        op.execute(f"CREATE TRIGGER {name}_{verb} BEFORE {verb.upper()} ON {table} {raises}")
