import os
import sqlite3
import threading
import time

import pytest
from sqlalchemy import text

from agent_harness.errors import StoreFault, UsageError
from agent_harness.store import Store
from agent_harness.store.lock import file_lock
from agent_harness.store.tables import ITEM
from fakes.queues import quick_folder


@pytest.fixture
def tmp_path():
    with quick_folder() as path:
        yield path


@pytest.fixture
def store(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path / 'ä b%20?c.db'}")
    yield store
    store.close()


def count(store):
    with store.read() as tx:
        return tx.execute(text("SELECT size FROM audit_head")).scalar_one()


def bump(tx):
    tx.execute(text("UPDATE audit_head SET size = size + 1"))


def test_the_file_is_named_as_asked_and_private(store, tmp_path):
    path = tmp_path / "ä b%20?c.db"
    assert path.exists()
    assert path.stat().st_mode & 0o077 == 0


def test_settings_hold_on_every_connection(store):
    with store.read() as first, store.read() as second:
        for tx in (first, second):
            got = [
                tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
            assert got == ["wal", 2, 1, 30000]


def test_a_write_is_whole_or_not_at_all(store):
    with store.write() as tx:
        bump(tx)
    with pytest.raises(KeyError), store.write() as tx:
        bump(tx)
        raise KeyError
    assert count(store) == 1


def test_a_read_is_one_snapshot_and_waits_for_nobody(store):
    with store.read() as old:
        assert old.execute(text("SELECT size FROM audit_head")).scalar_one() == 0
        with store.write() as tx:
            bump(tx)
            assert count(store) == 0
        assert old.execute(text("SELECT size FROM audit_head")).scalar_one() == 0
    assert count(store) == 1


def test_threads_write_one_after_the_other(store):
    def work():
        for _ in range(10):
            with store.write() as tx:
                size = tx.execute(text("SELECT size FROM audit_head")).scalar_one()
                tx.execute(text(f"UPDATE audit_head SET size = {size + 1}"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(store) == 40


def test_a_write_inside_a_write_is_a_bug_that_shows(store):
    with store.write(), pytest.raises(RuntimeError, match="inside another"), store.write():
        pass
    with store.write() as tx:
        bump(tx)


def test_hooks_run_after_the_commit_and_may_write(store):
    seen = []

    def hook():
        seen.append(count(store))
        with store.write() as tx:
            bump(tx)

    with store.write() as tx:
        bump(tx)
        store.after_commit(hook)
    assert seen == [1]
    assert count(store) == 2


def test_a_lock_that_is_not_given_back_is_a_fault_in_time(store, tmp_path):
    with file_lock(tmp_path / "ä b%20?c.db.lock", 1):
        start = time.monotonic()
        with pytest.raises(StoreFault, match="another process holds"), store.write(wait_s=0.1):
            pass
        assert time.monotonic() - start < 1


def test_a_lock_outlives_no_holder(tmp_path):
    with pytest.raises(ZeroDivisionError), file_lock(tmp_path / "l", 1):
        1 / 0
    with file_lock(tmp_path / "l", 0):
        pass


def test_a_broken_rule_is_one_line_without_the_values(store):
    with pytest.raises(StoreFault) as caught, store.write() as tx:
        tx.execute(
            ITEM.insert().values(
                id="secret-value",
                payload="{}",
                state="nonsense",
                key=None,
                **dict.fromkeys(
                    (
                        "priority",
                        "position",
                        "not_before_ms",
                        "generation",
                        "expires_ms",
                        "failures",
                        "losses",
                        "created_ms",
                        "updated_ms",
                    ),
                    0,
                ),
                **dict.fromkeys(("token", "run", "worker", "reason", "feedback"), ""),
            )
        )
    assert "ck_item_state" in caught.value.line
    assert "secret-value" not in caught.value.line + str(caught.value.__cause__)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://h/d", "sqlite://", "sqlite:///:memory:", "sqlite:///"])
def test_a_url_must_name_one_of_ours(url):
    with pytest.raises(UsageError, match="database URL"):
        Store.open(url)


def test_what_cannot_be_opened_says_why(tmp_path):
    (tmp_path / "text.db").write_text("no database, but long enough to look at " * 50)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE guests (name)")
    other.close()
    for name, line in (
        ("text.db", "not a database.*--db"),
        ("other.db", "no store of agent-harness: it has the table 'guests'"),
        ("", "it is a folder"),
        ("no/such/x.db", "No such file"),
        ("text.db/x.db", "check that the folder exists"),
    ):
        with pytest.raises(StoreFault, match=line):
            Store.open(f"sqlite:///{tmp_path / name}")
    assert [row[0] for row in sqlite3.connect(tmp_path / "other.db").execute("SELECT name FROM sqlite_master")] == [
        "guests"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user id")
def test_a_file_of_another_user_says_so(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir(mode=0o755)
    path = tmp_path
    while path != path.parent and not path.stat().st_mode & 0o001:
        path.chmod(path.stat().st_mode | 0o011)
        path = path.parent
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        try:
            Store.open(f"sqlite:///{folder / 'x.db'}")
        except StoreFault as fault:
            os._exit(0 if "Permission denied" in fault.line and "write access" in fault.line else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_file_that_was_taken_away_is_written_no_more(store, tmp_path):
    path = tmp_path / "ä b%20?c.db"
    path.rename(tmp_path / "elsewhere")
    for _ in "gone", "another":
        with pytest.raises(StoreFault, match="removed or replaced"), store.write() as tx:
            bump(tx)
        path.touch()
    (tmp_path / "elsewhere").replace(path)
    with store.write() as tx:
        bump(tx)
    assert count(store) == 1


def test_closing_hides_no_error(tmp_path):
    (tmp_path / "state").mkdir()
    store = Store.open(f"sqlite:///{tmp_path / 'state' / 'db'}")
    for one in (tmp_path / "state").iterdir():
        one.unlink()
    (tmp_path / "state").rmdir()
    with pytest.raises(StoreFault), store.write() as tx:
        bump(tx)
    store.close()


def test_what_is_no_text_is_the_callers_fault(store):
    with pytest.raises(UsageError, match="udcff"), store.read() as tx:
        tx.execute(text("SELECT :one"), {"one": "\udcff"})
