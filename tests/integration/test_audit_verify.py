"""Somebody with write access to the file changes the log behind its back: each change shows."""

from __future__ import annotations

import sqlite3
import zlib

import pytest

from agent_harness.audit import merkle
from agent_harness.errors import AuditError
from fakes.queues import Desk, quick_folder


@pytest.fixture
def desk():
    with quick_folder() as folder:
        desk = Desk.at(folder)
        for n in range(6):
            desk.audit.append("x", {"n": n}, item="i", run="r", bodies={"text": f"body {n % 4}"})
        yield desk
        desk.store.close()


def tamper(desk, *statements):
    db = sqlite3.connect(desk.store._path)
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        statement = statement if isinstance(statement, tuple) else (statement,)
        db.execute(*statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE event SET data = replace(data, '\"n\":2', '\"n\":9') WHERE seq = 3", ["event 3: it is not what was written"]),
        ("UPDATE event SET at_ms = at_ms + 1 WHERE seq = 1", ["event 1: it is not what was written"]),
        ("UPDATE event SET kind = 'y' WHERE seq = 1", ["event 1: it is not what was written"]),
        ("UPDATE event SET item = 'j' WHERE seq = 1", ["event 1: it is not what was written"]),
        ("UPDATE event SET run = '' WHERE seq = 1", ["event 1: it is not what was written"]),
        ("UPDATE event SET data = 'x' WHERE seq = 5", ["event 5: it cannot be read"]),
        ("UPDATE event SET data = '[]' WHERE seq = 5", ["event 5: it cannot be read"]),
        ("UPDATE event SET leaf = 'zz' WHERE seq = 6", ["event 6: it is not what", "the root of the head is not"]),
        ("DELETE FROM event WHERE seq = 2", ["event 3: number 2 is expected", "the head counts 6 events, there are 5"]),
        ("DELETE FROM event WHERE seq = 6", ["the head counts 6 events, there are 5"]),
        ("INSERT INTO event SELECT 7, at_ms, kind, item, run, data, leaf FROM event WHERE seq = 6", ["event 7: it is not", "the head counts 6 events, there are 7"]),
        ("UPDATE event SET seq = 9 WHERE seq = 6", ["event 9: number 6", "event 9: it is not"]),
        ("UPDATE audit_head SET size = 5", ["the head counts 5 events, there are 6"]),
        ("UPDATE audit_head SET peaks = substr(peaks, 66)", ["the root of the head is not"]),
        ("DELETE FROM blob WHERE rowid = 2", ["of event 2 is missing"]),
        ("UPDATE blob SET content = x'00' WHERE rowid = 2", ["of event 2 cannot be read"]),
        (("UPDATE blob SET content = ? WHERE rowid = 2", (zlib.compress(b"body X"),)), ["of event 2 is not what was written"]),
        (("INSERT INTO blob VALUES ('sha256:0', 1, ?)", (zlib.compress(b"x"),)), ["the body sha256:0 is not what"]),
    ],
)  # fmt: skip
def test_a_change_shows(desk, change, found):
    assert desk.audit.verify() == []
    tamper(desk, change)
    told = "\n".join(desk.audit.verify())
    for line in found:
        assert line in told


def test_a_consistent_forgery_shows_against_a_root_known_elsewhere(desk):
    """Cut the tail, or rewrite everything, with all hashes made anew: only a checkpoint can tell."""
    known = desk.audit.root()
    assert desk.audit.verify([known]) == []
    leaves = [bytes.fromhex(event.leaf) for event in desk.audit.events()][:4]
    peaks: list[bytes] = []
    for size, leaf in enumerate(leaves):
        peaks = merkle.grow(peaks, size, leaf)
    head = " ".join(peak.hex() for peak in peaks)
    tamper(desk, "DELETE FROM event WHERE seq > 4", f"UPDATE audit_head SET size = 4, peaks = '{head}'")
    assert desk.audit.verify() == []
    assert desk.audit.verify([known]) == ["a log of 6 events was known, there are 4"]
    assert desk.audit.verify([(4, known[1])]) == ["the root over the first 4 events is not the one that was known"]


def test_damage_is_an_audit_error_for_readers(desk):
    digest = desk.audit.events()[0].data["text"]
    tamper(
        desk, "UPDATE event SET data = '{' WHERE seq = 1", "UPDATE blob SET content = x'00'", "DELETE FROM audit_head"
    )
    with pytest.raises(AuditError, match="cannot be read"):
        desk.audit.events()
    with pytest.raises(AuditError, match="cannot be read"):
        desk.audit.body(digest)
    with pytest.raises(AuditError, match="lost its head"):
        desk.audit.append("x", {})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE event SET leaf = x'00' WHERE seq = 2", "event 2: it is not what was written"),
        ("UPDATE event SET data = '%s' WHERE seq = 2" % ("[" * 100_000), "event 2: it cannot be read"),
        ("UPDATE blob SET content = 'text' WHERE rowid = 1", "cannot be read"),
    ],
)
def test_another_type_than_was_written_is_told_as_a_change(desk, change, told):
    tamper(desk, change)
    assert told in " ".join(desk.audit.verify())


def test_a_head_that_is_no_head_is_said(desk):
    tamper(desk, "UPDATE audit_head SET peaks = 'no hash'")
    with pytest.raises(AuditError, match="lost its head"):
        desk.audit.verify()


def test_a_body_of_another_type_is_said(desk):
    (event,) = desk.audit.events(after=5)
    tamper(desk, "UPDATE blob SET content = 'text'")
    with pytest.raises(AuditError, match="cannot be read"):
        desk.audit.body(event.data["text"])
