"""The same queue and log on PostgreSQL, on a throw-away server where its programs and the driver are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from agent_harness.clock import SystemClock
from agent_harness.config import BudgetSettings
from agent_harness.errors import LimitReached, StoreFault
from agent_harness.queue.spending import Spending
from agent_harness.store import Store, migrate
from agent_harness.types import ItemState, Limits, NewItem, Settlement, Spend
from fakes.queues import Desk
from fakes.spenders import role, storm

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
pytestmark = pytest.mark.skipif(
    not PROGRAMS or importlib.util.find_spec("psycopg") is None, reason="PostgreSQL or psycopg is not installed"
)


@pytest.fixture(scope="module")
def server():
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        os.chown(folder, 65534, 65534)
    run = lambda *command: subprocess.run(
        command,
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        **user,
    )
    data = folder / "data"
    run(PROGRAMS[-1] / "initdb", "-D", data, "-A", "trust", "-U", "harness", "-E", "UTF8", "--no-sync")
    control = PROGRAMS[-1] / "pg_ctl"
    run(control, "-D", data, "-w", "-l", folder / "log", "-o", f"-c listen_addresses='' -k {folder}", "start")
    try:
        yield folder
    finally:
        run(control, "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def url(server):
    import psycopg

    with psycopg.connect(host=str(server), user="harness", dbname="postgres", autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS work WITH (FORCE)")
        db.execute("CREATE DATABASE work")
    return f"postgresql://harness:pass-word@/work?host={server}"


def test_a_life_of_items(url):
    desk = Desk.open(url, clock=SystemClock())
    desk.add("a", title="Grö\0ße")
    desk.add("b", depends_on=("a",))
    assert desk.queue.get("b").state is ItemState.BLOCKED
    claim = desk.queue.renew(desk.claim())
    desk.queue.delivering(claim)
    desk.queue.settle(claim, Settlement.DONE, reason="ok")
    desk.audit.append("x", {"text": "\0"}, bodies={"b": b"\0\xff"})
    desk.audit.append("x", {}, bodies={"b": b"\0\xff"})
    late = desk.claim(ttl_s=-1)
    assert late.item.id == "b"
    assert desk.queue.recover() == ["b"]
    assert desk.queue.get("b").losses == 1
    assert desk.audit.verify([desk.audit.root()]) == []
    assert desk.audit.events()[-1].data["new"] == "ready"
    for change in ("UPDATE event SET run = ''", "DELETE FROM blob", "TRUNCATE event"):
        with pytest.raises(StoreFault, match="append-only"), desk.store.write() as tx:
            tx.execute(text(change))
    desk.store.close()


def test_two_hosts_never_get_the_same_item(url):
    desk = Desk.open(url, clock=SystemClock())
    desk.queue.add_all([NewItem("x", "", id=f"j{n}") for n in range(60)])
    got = []

    def drain():
        own = Desk.open(url, clock=SystemClock())
        while claim := own.queue.claim("w", "r"):
            got.append(claim.item.id)
            own.queue.settle(claim, Settlement.DONE, reason="ok")
        own.store.close()

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(f"j{n}" for n in range(60))
    assert [event.seq for event in desk.audit.events()] == list(range(1, 181))
    assert desk.audit.verify() == []
    desk.store.close()


def test_a_lock_that_is_not_given_back_is_a_fault_in_time(url):
    one, two = Store.open(url), Store.open(url)
    with one.write(), pytest.raises(StoreFault, match="lock timeout"), two.write(wait_s=0.1):
        pass
    one.close()
    two.close()


def test_the_history_is_the_same_and_an_upgrade_is_asked_for(url, tmp_path):
    folder = tmp_path / "next"
    shutil.copytree(migrate.HISTORY, folder)
    (folder / "versions" / "9999_x.py").write_text(
        "from alembic import op\nrevision = '9999'\ndown_revision = '0001'\n"
        "def upgrade():\n    op.execute('ALTER TABLE item ADD colour text')\n"
    )
    store = Store.open(url)
    with store.read() as tx:
        fresh = _schema(tx)
    with store.write() as tx:
        tx.execute(text("DROP SCHEMA public CASCADE"))
        tx.execute(text("CREATE SCHEMA public"))
        tx.exec_driver_sql((Path(__file__).parent / "schemas/0001-postgresql.sql").read_text())
    Store.open(url, upgrade=True).close()
    with store.read() as tx:
        assert _schema(tx) == fresh
    store.close()
    newer = folder
    with pytest.raises(StoreFault, match="older schema"):
        Store.open(url, history=newer)
    Store.open(url, history=newer, upgrade=True).close()
    with pytest.raises(StoreFault, match="newer agent-harness") as caught:
        Store.open(url)
    assert "pass-word" not in caught.value.line


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(StoreFault, match=r"harness@/work.*connection.*Next: check that the server runs") as caught:
        Store.open(f"postgresql+psycopg://harness@/work?host={tmp_path}")
    assert "\n" not in caught.value.line


def _schema(tx):
    columns = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public'"
    return {
        *map(tuple, tx.execute(text(columns)).all()),
        *map(tuple, tx.execute(text("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'")).all()),
        *map(tuple, tx.execute(text("SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace")).all()),
        *map(tuple, tx.execute(text("SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal")).all()),
    }  # fmt: skip


def test_the_workers_of_one_server_have_one_budget(url):
    told = storm(url, 120, processes=3)
    assert told["used of the ceiling"] > 0.5
    desk = Desk.open(url, clock=SystemClock())
    spending = Spending(desk.store, desk.clock, BudgetSettings(per="month"))
    limits = Limits(2, 100, 100, 60.0)
    desk.add("a")
    run = spending.budget("r", "a", limits, role(limits))
    run.reserve(Spend(1, 1, 1))
    run.settle(run.reserve(Spend(1, 60, 60)), Spend(1, 50, 50))
    assert spending.spent()["a"] == Spend(2, 51, 51)
    with pytest.raises(LimitReached, match="2 of 2 steps"):
        spending.budget("s", "a", limits, role(limits)).reserve(Spend(1, 1, 1))
    desk.queue.retry("a")
    assert spending.spent()["a"] == Spend()
    assert spending.recover() == 0
    desk.store.close()
