"""One history: a fresh schema is the upgraded one, and an upgrade keeps what was there."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent_harness.errors import StoreFault
from agent_harness.store import Store, migrate
from fakes.queues import Desk

SCHEMAS = Path(__file__).parent / "schemas"
SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "0001"


def upgrade():
    with op.batch_alter_table("item") as batch:
        batch.add_column(sa.Column("colour", sa.Text(), nullable=False, server_default="blue"))
        batch.alter_column("priority", type_=sa.BigInteger())
"""


@pytest.fixture
def next_history(tmp_path):
    folder = tmp_path / "next 100% new"
    shutil.copytree(migrate.HISTORY, folder)
    (folder / "versions" / "9999_colour.py").write_text(SECOND)
    return folder


def schema(path: Path) -> set[tuple[str, str]]:
    with sqlite3.connect(path) as db:
        return {
            (name, re.sub(r"\s+", " ", sql or "")) for name, sql in db.execute("SELECT name, sql FROM sqlite_master")
        }


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        return db.execute(query).fetchall()


def test_a_fresh_schema_equals_the_first_one_upgraded(tmp_path):
    Store.open(f"sqlite:///{tmp_path / 'fresh.db'}").close()
    with sqlite3.connect(tmp_path / "grown.db") as db:
        db.executescript((SCHEMAS / "0001-sqlite.sql").read_text())
    Store.open(f"sqlite:///{tmp_path / 'grown.db'}").close()
    fresh = schema(tmp_path / "fresh.db")
    assert fresh == schema(tmp_path / "grown.db")
    assert {"item", "event", "blob", "ix_item_claim", "event_append_only_update", "blob_append_only_delete"} <= {
        n for n, _ in fresh
    }
    for table in ("audit_head", "alembic_version"):
        query = f"SELECT * FROM {table}"
        assert rows(tmp_path / "fresh.db", query) == rows(tmp_path / "grown.db", query)
    assert rows(tmp_path / "fresh.db", "SELECT version_num FROM alembic_version") == [
        (migrate.revisions(migrate.HISTORY)[-1],)
    ]


def test_an_upgrade_keeps_the_work_and_a_copy_of_it(tmp_path, next_history):
    path = tmp_path / "store.db"
    desk = Desk.open(f"sqlite:///{path}")
    desk.add("a")
    desk.add("b", depends_on=("a",))
    desk.claim()
    root = desk.audit.root()
    desk.store.close()
    before = schema(path)

    store = Store.open(f"sqlite:///{path}", history=next_history)
    grown = Desk(store, desk.clock, desk.audit.__class__(store, desk.clock, str), desk.queue)
    assert grown.audit.root() == root
    assert grown.audit.verify() == []
    store.close()
    assert rows(path, "SELECT id, colour, state FROM item ORDER BY id") == [
        ("a", "blue", "claimed"),
        ("b", "blue", "blocked"),
    ]
    assert rows(path, "SELECT count(*) FROM dependency") == [(1,)]
    kept = {name for name, _ in schema(path)}
    assert {name for name, _ in before} == kept
    (item_sql,) = [sql for name, sql in schema(path) if name == "item"]
    assert "ck_item_state" in item_sql
    (copy,) = tmp_path.glob("store.db.backup-*")
    assert rows(copy, "SELECT count(*) FROM event") == [(3,)]
    assert "colour" not in str(schema(copy))

    Store.open(f"sqlite:///{path}", history=next_history).close()
    assert len(list(tmp_path.glob("store.db.backup-*"))) == 1


def test_an_empty_store_is_upgraded_without_a_copy(tmp_path, next_history):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    Store.open(url).close()
    Store.open(url, history=next_history).close()
    assert list(tmp_path.glob("*backup*")) == []
    assert rows(tmp_path / "store.db", "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_failed_upgrade_leaves_the_old_state(tmp_path, next_history):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    Store.open(url).close()
    before = schema(tmp_path / "store.db")
    broken = next_history / "versions" / "9999_colour.py"
    broken.write_text(SECOND + "    op.execute('SELECT nonsense FROM nowhere')\n")
    with pytest.raises(StoreFault, match="nowhere"):
        Store.open(url, history=next_history)
    assert schema(tmp_path / "store.db") == before
    Store.open(url).close()


def test_a_newer_store_is_refused_and_left_alone(tmp_path, next_history):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    Store.open(url).close()
    Store.open(url, history=next_history).close()
    before = schema(tmp_path / "store.db")
    with pytest.raises(
        StoreFault, match=r"newer agent-harness: it has revision 9999, this version knows up to 0001\. Next: update"
    ):
        Store.open(url)
    assert schema(tmp_path / "store.db") == before


def test_opening_does_not_import_alembic(tmp_path):
    code = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from agent_harness.store import Store
for _ in range(2): Store.open("sqlite:///{tmp_path / "store.db"}").close()
print([name for name in sys.modules if name.startswith(("alembic", "mako"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
