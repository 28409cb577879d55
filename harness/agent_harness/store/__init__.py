"""The one database: tables, transactions, migrations. SQLite by default, PostgreSQL by URL."""

from agent_harness.store.engine import Store

__all__ = ["Store"]
