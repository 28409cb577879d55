"""The tables, as they are at the newest revision.

Times are BIGINT milliseconds. Every constraint has a name, as a rebuild on SQLite drops those without. A change here
needs a migration; a test compares a fresh schema with an upgraded one.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
    text,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_STATES = "'ready', 'claimed', 'delivering', 'held', 'blocked', 'done', 'failed', 'exhausted', 'cancelled'"
_ACTIVE = "state IN ('claimed', 'delivering')"

ITEM = Table(
    "item",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("key", Text, unique=True),
    Column("payload", Text, nullable=False),  # what the person queued, as JSON
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("position", BigInteger, nullable=False, unique=True),  # order of arrival
    Column("not_before_ms", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),  # only ever grows
    Column("token", Text, nullable=False),  # of the newest claim; empty when its rights were taken away
    Column("run", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("feedback", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
)
Index(
    "ix_item_claim",
    text("priority DESC"),
    ITEM.c.not_before_ms,
    ITEM.c.position,
    sqlite_where=text("state = 'ready'"),
    postgresql_where=text("state = 'ready'"),
)
Index("ix_item_lease", ITEM.c.expires_ms, sqlite_where=text(_ACTIVE), postgresql_where=text(_ACTIVE))

DEPENDENCY = Table(
    "dependency",
    METADATA,
    Column("item", Text, ForeignKey("item.id"), primary_key=True),
    Column("needs", Text, ForeignKey("item.id"), primary_key=True, index=True),
    Column("ordinal", Integer, nullable=False),  # as the person wrote them
)

ATTEMPT = Table(
    "attempt",
    METADATA,
    Column("item", Text, ForeignKey("item.id"), primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("token", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("outcome", Text),  # a settlement, or `lost`
)

EVENT = Table(
    "event",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("item", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("data", Text, nullable=False),  # canonical JSON
    Column("leaf", String(64), nullable=False),
    Index(None, "item", "seq"),
    Index(None, "run", "seq"),
)

BLOB = Table(
    "blob",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),  # zlib
)

AUDIT_HEAD = Table(
    "audit_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("size", BigInteger, nullable=False),
    Column("peaks", Text, nullable=False),  # hexadecimal, largest subtree first, separated by spaces
    CheckConstraint("id = 1", name="single"),
)

VERSION = Table(
    "alembic_version",
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def append_only(table: str) -> dict[str, list[str]]:
    """The statements, by dialect, with which the database itself refuses to change or remove a table's rows."""
    name = f"{table}_append_only"
    sqlite = [
        f"CREATE TRIGGER {name}_{verb} BEFORE {verb.upper()} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for verb in ("update", "delete")
    ]
    raises = f"BEGIN RAISE EXCEPTION '{table} is append-only'; END"
    postgresql = [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {raises} $$",
        f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} EXECUTE FUNCTION {name}()",
    ]
    return {"sqlite": sqlite, "postgresql": postgresql}


for _table in (EVENT, BLOB):
    for _dialect, _statements in append_only(_table.name).items():
        for _statement in _statements:
            _ddl = DDL(_statement)  # type: ignore[no-untyped-call]
            event.listen(_table, "after_create", _ddl.execute_if(dialect=_dialect))
