import os

import pytest

from agent_harness.errors import AuditError, StoreFault, UsageError
from agent_harness.store.tables import BLOB, EVENT
from agent_harness.types import digest
from agent_harness.types.kinds import Kind
from fakes.queues import SECRET, Desk, quick_folder


@pytest.fixture
def folder():
    with quick_folder() as path:
        yield path


@pytest.fixture
def desk(folder):
    desk = Desk.at(folder)
    yield desk
    desk.store.close()


def test_events_are_numbered_without_gaps_and_read_back_as_written(desk):
    written = [
        desk.audit.append(Kind.EDIT_MADE, {"n": n, "t": ("a", None, 1.5, "ü\0")}, item=f"i{n % 2}", run="r")
        for n in range(5)
    ]
    assert [event.seq for event in written] == [1, 2, 3, 4, 5]
    assert written[0].data == {"n": 0, "t": ["a", None, 1.5, "ü\0"]}
    assert desk.audit.events() == written
    assert desk.audit.events(after=3) == written[3:]
    assert desk.audit.events(item="i1") == written[1::2]
    assert desk.audit.events(run="other") == []
    assert desk.audit.events(kinds=[Kind.EDIT_MADE], item="i0", run="r", after=1) == [written[2], written[4]]
    assert desk.audit.events(kinds=[]) == []
    assert desk.audit.verify() == []


def test_the_root_follows_and_old_roots_are_held_against_it(desk):
    roots = [desk.audit.root()]
    for n in range(9):
        desk.audit.append("x", {"n": n})
        roots.append(desk.audit.root())
    assert [size for size, _ in roots] == list(range(10))
    assert len({root for _, root in roots}) == 10
    assert desk.audit.verify(roots[1:]) == []


def test_bodies_are_stored_once_by_content(desk):
    recorder = desk.audit.recorder("i", "r")
    first = recorder.event(Kind.COMMAND_ENDED, {"end": "ok"}, {"output": b"\xff\0binary", "more": "text \ud800"})
    second = recorder.event(Kind.COMMAND_ENDED, {}, {"output": b"\xff\0binary"})
    assert (first.item, first.run) == ("i", "r")
    assert first.data["output"] == second.data["output"] == digest(b"\xff\0binary")
    assert first.data["bodies"] == ["more", "output"]
    assert desk.audit.body(first.data["output"]) == b"\xff\0binary"
    assert desk.audit.body(first.data["more"]) == b"text ?"
    with desk.store.read() as tx:
        assert len(tx.execute(BLOB.select()).all()) == 2
    with pytest.raises(UsageError, match="no body"):
        desk.audit.body("sha256:0")


def test_secrets_are_out_before_the_write(desk, folder):
    event = desk.audit.append("x", {SECRET: [f"a{SECRET}"]}, bodies={"b": f"{SECRET}!", "c": b"\xff" + SECRET.encode()})
    assert event.data["[redacted:PASSWORD]"] == ["a[redacted:PASSWORD]"]
    assert desk.audit.body(event.data["b"]) == b"[redacted:PASSWORD]!"
    assert desk.audit.body(event.data["c"]) == b"\xff[redacted:PASSWORD]"
    assert not any(SECRET.encode() in path.read_bytes() for path in folder.iterdir())


def test_listeners_hear_of_what_is_committed_and_only_that(desk):
    heard = []
    desk.audit.subscribe(lambda event: heard.append((event.seq, desk.audit.root()[0])))
    desk.audit.append("x", {})
    with desk.store.write() as tx:
        desk.audit.append("x", {}, tx=tx)
        desk.audit.append("x", {}, tx=tx)
        assert len(heard) == 1
    with pytest.raises(ZeroDivisionError), desk.store.write() as tx:
        desk.audit.append("x", {}, tx=tx)
        1 / 0
    desk.audit.append("x", {})
    assert heard == [(1, 1), (2, 3), (3, 3), (4, 4)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}, object()])
def test_what_is_no_json_is_refused(desk, value):
    with pytest.raises(AuditError, match=r"data\.a\[\] is no JSON"):
        desk.audit.append("x", {"a": [value]})
    assert desk.audit.root()[0] == 0


@pytest.mark.parametrize("table", [EVENT, BLOB])
def test_the_database_refuses_to_change_or_remove_what_was_written(desk, table):
    desk.audit.append("x", {}, bodies={"b": "text"})
    for change in (table.delete(), table.update().values({table.c.keys()[-1]: b"x"})):
        with pytest.raises(StoreFault, match="append-only"), desk.store.write() as tx:
            tx.execute(change)
    assert desk.audit.verify() == []


def test_a_full_disk_is_an_audit_error_and_leaves_no_trace(desk):
    desk.audit.append("x", {})
    with desk.store.read() as tx:
        pages = tx.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(AuditError, match="full"):
        desk.audit.append("x", {}, bodies={"b": os.urandom(300_000)})
    with desk.store.read() as tx:
        tx.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert desk.audit.root()[0] == 1
    assert desk.audit.verify() == []
