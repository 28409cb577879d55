"""The audit log: appends events and reads them back."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Select, select, text

from agent_harness.audit import merkle
from agent_harness.audit.entry import BODIES, CONTENT, clean_body, clean_data, event_of, pack, row_of, sealed, unpack
from agent_harness.audit.verify import problems
from agent_harness.errors import AuditError, StoreFault, UsageError
from agent_harness.ports import Clock, Recorder
from agent_harness.store import Store
from agent_harness.store.tables import AUDIT_HEAD, BLOB, EVENT
from agent_harness.types import JSON, Event
from agent_harness.types.kinds import Kind

UNSYNCED = frozenset(
    {
        *(Kind.MODEL_ANSWERED, Kind.MODEL_FAILED, Kind.COMMAND_STARTED, Kind.COMMAND_ENDED, Kind.EDIT_MADE),
        *(Kind.TOOL_REFUSED, Kind.SANDBOX_STARTING, Kind.SANDBOX_READY, Kind.SANDBOX_CLOSED, Kind.GATE_STARTED),
    }
)
"""Kinds that do not wait for the disk: results, and what is done inside a sandbox. The intent of the next paid call or
effect outside does, and takes them along. An answer lost with the power leaves its call's intent, which is counted at
its worst case."""

_BLOBS = text("INSERT INTO blob (digest, size, content) VALUES (:digest, :size, :content) ON CONFLICT DO NOTHING")


class AuditLog:
    """One append-only log for all items. Safe for threads and processes; secrets are taken out before any write."""

    def __init__(self, store: Store, clock: Clock, redact: Callable[[str], str]) -> None:
        self.redact = redact
        self._store = store
        self._clock = clock
        self._listeners: list[Callable[[Event], None]] = []

    def append(
        self,
        kind: str,
        data: JSON,
        *,
        item: str = "",
        run: str = "",
        bodies: Mapping[str, str | bytes] | None = None,
        tx: Connection | None = None,
    ) -> Event:
        """Append one event; without `tx` it is written on return, with `tx` it stands or falls with it.

        What `UNSYNCED` names survives a killed process at once, and a power cut from the next other event on.

        Each of `bodies` is stored by content, and its digest put into `data` under its name; `data["bodies"]` then
        lists these names. Raises AuditError (not JSON, or it could not be written).
        """
        clean = clean_data(data, self.redact)
        blobs: list[dict[str, Any]] = []
        if bodies:
            digests, blobs = pack({name: clean_body(body, self.redact) for name, body in bodies.items()})
            clean |= digests | {BODIES: sorted(digests)}
        if tx is not None:
            return self._write(tx, (str(kind), item, run, clean), blobs)
        try:
            with self._store.write(synced=kind not in UNSYNCED) as own:
                return self._write(own, (str(kind), item, run, clean), blobs)
        except StoreFault as fault:
            raise AuditError(f"the event {kind} could not be written", why=fault.line) from fault

    def recorder(self, item: str, run: str) -> Recorder:
        """The log as one item's run sees it."""
        return _Recorder(self, item, run)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Have `listener` called with each event this object appends, once it is committed.

        It is called by the appending thread, outside the transaction, and must not raise: the event stands."""
        self._listeners.append(listener)

    def events(
        self, *, item: str | None = None, run: str | None = None, kinds: Collection[str] | None = None, after: int = 0
    ) -> list[Event]:
        """The events with `seq` above `after` that match, in order."""
        query: Select[Any] = select(EVENT).where(EVENT.c.seq > after).order_by(EVENT.c.seq)
        for column, wanted in (EVENT.c.item, item), (EVENT.c.run, run):
            query = query if wanted is None else query.where(column == wanted)
        if kinds is not None:
            query = query.where(EVENT.c.kind.in_([str(kind) for kind in kinds]))
        with self._store.read() as tx:
            rows = tx.execute(query).all()
        try:
            return [event_of(row) for row in rows]
        except (ValueError, TypeError, RecursionError) as error:
            raise AuditError("an event cannot be read", why=str(error), next="agent-harness audit verify") from error

    def body(self, digest: str) -> bytes:
        """A stored body. Raises UsageError (there is none) or AuditError (it is damaged)."""
        with self._store.read() as tx:
            content = tx.execute(select(CONTENT).where(BLOB.c.digest == digest)).scalar_one_or_none()
        if content is None:
            raise UsageError(f"no body {digest} is stored")
        try:
            return unpack(content)
        except ValueError as error:
            raise AuditError(f"the body {digest} cannot be read", why=str(error)) from error

    def root(self) -> tuple[int, str]:
        """How many events there are, and the Merkle root over them in hexadecimal."""
        with self._store.read() as tx:
            size, peaks = _head(tx)
        return size, merkle.bag(peaks).hex()

    def verify(self, checkpoints: Iterable[tuple[int, str]] = ()) -> list[str]:
        """Recompute everything; returns what does not hold, nothing when all does.

        `checkpoints` are sizes and roots known from elsewhere (commit trailers): without one, a log whose end was cut
        off together with its head looks like a shorter log.
        """
        with self._store.read() as tx:
            return problems(tx, _head(tx), checkpoints)

    def _write(self, tx: Connection, record: tuple[str, str, str, JSON], blobs: list[dict[str, Any]]) -> Event:
        size, peaks = _head(tx)
        event = sealed(Event(size + 1, self._clock.now_ms(), *record, leaf=""))
        if blobs:
            tx.execute(_BLOBS, blobs)
        tx.execute(EVENT.insert(), row_of(event))
        grown = merkle.grow(peaks, size, bytes.fromhex(event.leaf))
        tx.execute(AUDIT_HEAD.update().values(size=event.seq, peaks=" ".join(peak.hex() for peak in grown)))
        if self._listeners:
            self._store.after_commit(lambda: self._tell(event))
        return event

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


class _Recorder:
    """Implements `ports.Recorder`."""

    def __init__(self, log: AuditLog, item: str, run: str) -> None:
        self._log, self._item, self._run = log, item, run

    def event(self, kind: str, data: JSON, bodies: Mapping[str, str | bytes] | None = None) -> Event:
        """Append one event of this item and run."""
        return self._log.append(kind, data, item=self._item, run=self._run, bodies=bodies)


def _head(tx: Connection) -> tuple[int, list[bytes]]:
    row: Any = tx.execute(select(AUDIT_HEAD.c.size, AUDIT_HEAD.c.peaks)).one_or_none()
    with suppress(AttributeError, TypeError, ValueError):
        return int(row.size), [bytes.fromhex(peak) for peak in row.peaks.split()]
    raise AuditError("the audit log has lost its head", next="restore the database from a backup")
