"""The tables, as they are at the newest revision.

Times are BIGINT milliseconds. Every constraint has a name, as a rebuild on SQLite drops those without. A change here
needs a migration; a test compares a fresh schema with an upgraded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table, Text, event, text

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_STATES = "'ready', 'claimed', 'delivering', 'held', 'blocked', 'done', 'failed', 'exhausted', 'cancelled'"


def texts(*names: str) -> list[Column[str]]:
    """Columns of text, none of them NULL."""
    return [Column(name, Text, nullable=False) for name in names]


def of_item(name: str = "item", *, index: bool = False) -> Column[str]:
    """The column of an item's id, a part of the row's own name."""
    return Column(name, Text, sa.ForeignKey("item.id"), primary_key=True, index=index)


def numbers(*names: str, big: bool = True) -> list[Column[int]]:
    """Columns of whole numbers, none of them NULL."""
    return [Column(name, BigInteger if big else Integer, nullable=False) for name in names]


ITEM = Table(
    "item",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("key", Text, unique=True),
    *texts("payload", "state"),  # payload: what the person queued, as JSON
    *numbers("priority", big=False),
    Column("position", BigInteger, nullable=False, unique=True),  # order of arrival
    *numbers("not_before_ms", "generation"),  # the generation only ever grows
    *texts("token", "run", "worker"),  # of the newest claim; no token when its rights were taken away
    *numbers("expires_ms"),
    *numbers("failures", "losses", big=False),
    *texts("reason", "feedback"),
    *numbers("created_ms", "updated_ms"),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
)


def _partial(name: str, where: str, *columns: Any) -> None:
    """An index over those items alone that a condition holds for."""
    Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


_partial("ix_item_claim", "state = 'ready'", text("priority DESC"), ITEM.c.not_before_ms, ITEM.c.position)
_partial("ix_item_lease", "state IN ('claimed', 'delivering')", ITEM.c.expires_ms)

DEPENDENCY = Table(
    "dependency",
    METADATA,
    of_item(),
    of_item("needs", index=True),
    Column("ordinal", Integer, nullable=False),  # as the person wrote them
)

WANTED = Table(  # a dependency on a key that no item has yet
    "wanted",
    METADATA,
    of_item(),
    Column("key", Text, primary_key=True, index=True),
    Column("ordinal", Integer, nullable=False),
)

ANSWER = Table(
    "answer",
    METADATA,
    of_item(),
    Column("digest", Text, nullable=False),  # of a body in `blob`
)

ATTEMPT = Table(
    "attempt",
    METADATA,
    of_item(),
    Column("generation", BigInteger, primary_key=True),
    *texts("token", "run", "worker"),
    *numbers("started_ms"),
    Column("ended_ms", BigInteger),
    Column("outcome", Text),  # a settlement, or `lost`
)

EVENT = Table(
    "event",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    *numbers("at_ms"),
    *texts("kind", "item", "run", "data"),  # data: canonical JSON
    Column("leaf", sa.String(64), nullable=False),
    Index(None, "item", "seq"),
    Index(None, "run", "seq"),
)

BLOB = Table(
    "blob",
    METADATA,
    Column("digest", Text, primary_key=True),
    *numbers("size"),
    Column("content", sa.LargeBinary, nullable=False),  # zlib
)

VERDICT = Table(
    "verdict",
    METADATA,
    Column("key", Text, primary_key=True),  # digest of all that the verdict depends on
    *texts("target", "head"),  # target: what the change was made to, as the person named it
    *numbers("at_ms"),
    *texts("report"),  # JSON, as it was before waivers
    Index(None, "target", "at_ms"),
)

AUDIT_HEAD = Table(
    "audit_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    *numbers("size"),
    *texts("peaks"),  # hexadecimal, largest subtree first, separated by spaces
    CheckConstraint("id = 1", name="single"),
)

BUDGET = Table(
    "budget",
    METADATA,
    Column("scope", Text, primary_key=True),  # an item's id; empty for the project
    Column("period", Text, primary_key=True),  # the project's day, month or `ever`; empty for items
    *numbers("steps", "tokens", "nanousd", "ms"),  # what is spent and what is held, together
)

RESERVATION = Table(
    "reservation",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    *texts("item", "period", "worker", "run"),
    *numbers("steps", "tokens", "nanousd", "at_ms"),
)

VERSION = Table(
    "alembic_version",
    METADATA,
    Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def _append_only(table: str) -> Iterator[tuple[str, str]]:
    """Statements, each after its dialect, by which the database itself refuses to change or remove a table's rows."""
    name, says = f"{table}_append_only", f"'{table} is append-only'"
    for verb in ("update", "delete"):
        act = f"BEGIN SELECT RAISE(ABORT, {says}); END"
        yield "sqlite", f"CREATE TRIGGER {name}_{verb} BEFORE {verb} ON {table} {act}"
    body = f"$$ BEGIN RAISE EXCEPTION {says}; END $$"
    yield "postgresql", f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}"
    verbs = "UPDATE OR DELETE OR TRUNCATE"
    yield "postgresql", f"CREATE TRIGGER {name} BEFORE {verbs} ON {table} EXECUTE FUNCTION {name}()"


for _table in (EVENT, BLOB):
    for _dialect, _statement in _append_only(_table.name):
        event.listen(_table, "after_create", sa.DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
