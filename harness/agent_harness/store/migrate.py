"""Bringing a database to the newest revision.

A fresh one is laid out from the tables directly, one that holds data is upgraded by Alembic, whose import costs a
second and so happens only then.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select, text

from agent_harness.errors import StoreFault
from agent_harness.store.tables import AUDIT_HEAD, EVENT, ITEM, METADATA, VERSION

HISTORY = Path(__file__).parent / "migrations"


def revisions(history: Path) -> list[str]:
    """All revisions that a folder of migrations has, oldest first. One's file is `versions/<revision>_<words>.py`, and
    they sort by name."""
    return sorted(path.name.partition("_")[0] for path in (history / "versions").glob("[0-9]*_*.py"))


def revision(tx: Connection) -> str | None:
    """The revision the database says it has; None when it never had one."""
    if not inspect(tx).has_table(VERSION.name):
        return None
    return tx.execute(select(VERSION.c.version_num)).scalar_one_or_none()


def pending(tx: Connection, history: Path, where: str) -> bool:
    """Whether the database must be laid out or upgraded. Raises StoreFault for one that is not ours to touch."""
    current, known = revision(tx), revisions(history)
    if current is None:
        strangers = inspect(tx).get_table_names()
        if strangers:
            raise StoreFault(
                f"{where} is no store of agent-harness",
                why=f"it has the table {strangers[0]!r} and no revision",
                next="name another database with --db",
            )
        return True
    if current not in known:
        raise StoreFault(
            f"{where} was written by a newer agent-harness",
            why=f"it has revision {current}, this version knows up to {known[-1]}",
            next="update agent-harness, or name another database with --db",
        )
    return current != known[-1]


def lay_out(tx: Connection, history: Path) -> None:
    """Make the tables in an empty database."""
    METADATA.create_all(tx, checkfirst=False)
    tx.execute(VERSION.insert().values(version_num=revisions(history)[-1]))
    tx.execute(AUDIT_HEAD.insert().values(id=1, size=0, peaks=""))


def upgrade(tx: Connection, history: Path, engine: Engine, path: Path | None) -> None:
    """Run the migrations that are missing, inside the caller's transaction; an SQLite database (it has a path) is
    copied first, and its keys are held to account afterwards, as a rebuilt table is filled without them."""
    from alembic import command
    from alembic.config import Config

    if path:
        back_up(engine, path)
    config = Config(attributes={"connection": tx})
    config.set_main_option("script_location", str(history).replace("%", "%%"))
    command.upgrade(config, "head")
    if path and (broken := tx.execute(text("PRAGMA foreign_key_check")).first()):
        raise StoreFault("the upgrade was undone", why=f"it broke references of the table {broken[0]!r}")


def back_up(engine: Engine, path: Path) -> None:
    """Copy an SQLite database that holds work beside itself. Nobody else may be writing."""
    copy = path.with_name(f"{path.name}.backup-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    held = f"SELECT EXISTS (SELECT 1 FROM {ITEM.name}) OR EXISTS (SELECT 1 FROM {EVENT.name})"  # noqa: S608 - ours
    with closing(engine.raw_connection()) as raw:
        if raw.cursor().execute(held).fetchone()[0]:
            raw.cursor().execute("VACUUM INTO ?", (str(copy),))
