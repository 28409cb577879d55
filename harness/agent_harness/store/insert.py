"""Inserting where the row may be there already."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_missing(tx: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert those rows whose primary key is not in the table yet."""
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    tx.execute(insert(table).on_conflict_do_nothing(), rows)
