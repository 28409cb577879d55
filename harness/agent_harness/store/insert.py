"""Inserting where the row may be there already."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table


def insert_missing(tx: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert those rows whose primary key is not in the table yet."""
    dialect = import_module(f"sqlalchemy.dialects.{tx.dialect.name}")  # the other one would cost every start its import
    tx.execute(dialect.insert(table).on_conflict_do_nothing(), rows)
