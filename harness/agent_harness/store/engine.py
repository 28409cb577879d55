"""The store: one database, read by snapshot and written by one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from agent_harness.errors import StoreFault, UsageError
from agent_harness.store import migrate
from agent_harness.store.faults import os_fault, store_faults
from agent_harness.store.lock import file_lock

WAIT_S = 30.0
"""How long a writer waits for its turn."""

_WRITERS = 0x6167_6E74  # the advisory lock that PostgreSQL's writers queue at
_BEGIN = "harness_begin"
"""The option of a connection that names the statements by which SQLite begins a transaction."""


class Store:
    """The database of the queue and the audit log. Safe for threads; open one per process.

    Write transactions are serial over all processes, so a read inside one stays true until its commit. Keep them
    short, with no call to git, a model or a sandbox inside.
    """

    def __init__(self, engine: Engine, where: str, path: Path | None) -> None:
        self._engine = engine
        self._where = where
        self._path = path
        self._file = _identity(path)
        self._here = threading.local()

    @classmethod
    def open(cls, url: str, *, upgrade: bool | None = None, history: Path = migrate.HISTORY) -> Self:
        """Open `sqlite:///path` or `postgresql+psycopg://...`; an empty database is laid out.

        `upgrade` says whether an older one is upgraded; None means SQLite yes (after a backup), PostgreSQL no, as
        workers on other hosts may still use it. Raises UsageError (not such a URL) or StoreFault.
        """
        path = _file_of(url)
        if path:
            _prepare_file(path)
            store = cls(_sqlite(path), str(path), path)
        else:
            server = _server_of(url)
            store = cls(_postgresql(server), server.render_as_string(hide_password=True), None)
        try:
            store._bring_up(history, upgrade=path is not None if upgrade is None else upgrade)
        except BaseException:
            store.close()
            raise
        return store

    @contextmanager
    def write(self, wait_s: float = WAIT_S, *, synced: bool = True, keys: bool = True) -> Iterator[Connection]:
        """A write transaction: committed at the end, rolled back on any error.

        A commit survives the death of every process; with `synced` it survives a power cut too, and so does all that
        was committed before it. `keys` says whether SQLite holds rows to what they refer to. Raises StoreFault, also
        when no turn came within `wait_s` seconds.
        """
        if getattr(self._here, "hooks", None) is not None:
            raise RuntimeError("a write transaction inside another one would wait for itself: pass the outer one on")
        hooks: list[Callable[[], None]] = []
        self._here.hooks = hooks
        try:
            with self._turn(wait_s), store_faults(self._where), self._engine.connect() as tx:
                pragmas = f"synchronous = {'FULL' if synced else 'NORMAL'}", f"foreign_keys = {int(keys)}"
                tx.execution_options(**{_BEGIN: (*(f"PRAGMA {one}" for one in pragmas), "BEGIN IMMEDIATE")})
                with tx.begin():
                    if self._path is None:
                        how = f"lock_timeout = {max(1, int(wait_s * 1000))}; SET LOCAL synchronous_commit = {synced}"
                        tx.exec_driver_sql(f"SET LOCAL {how}; SELECT pg_advisory_xact_lock({_WRITERS})")
                    yield tx
                if not keys:
                    tx.invalidate()  # the next to use it wants them
        finally:
            self._here.hooks = None
        for hook in hooks:
            hook()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: one snapshot, never waiting for a writer nor holding one up. Raises StoreFault."""
        with store_faults(self._where), self._engine.connect() as tx, tx.begin():
            if self._path is None:
                tx.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            yield tx

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Have `hook` called once this thread's write transaction is committed; never when it is rolled back."""
        self._here.hooks.append(hook)

    def database_ms(self, tx: Connection) -> int | None:
        """The server's wall clock, by which all hosts agree; None where the database is a local file."""
        if self._path:
            return None
        return int(tx.execute(text("SELECT extract(epoch FROM clock_timestamp()) * 1000")).scalar_one())

    def close(self) -> None:
        """Close all connections. Safe to repeat."""
        # The last connection to leave folds SQLite's log into the file, which is a write.
        with suppress(StoreFault), self._turn(WAIT_S):
            self._engine.dispose()
        self._engine.dispose()  # where there was no turn to get, the database's own locks do

    @contextmanager
    def _turn(self, wait_s: float) -> Iterator[None]:
        if self._path is None:
            yield
            return
        with file_lock(self._path.with_name(self._path.name + ".lock"), wait_s):
            if _identity(self._path) != self._file:  # SQLite would go on writing to a file that nobody finds again
                raise StoreFault(
                    f"the store {self._where} was removed or replaced while it was in use",
                    next="end all workers, put the right file in its place, then run again",
                )
            yield

    def _bring_up(self, history: Path, *, upgrade: bool) -> None:
        with self.read() as tx:
            journal = tx.execute(text("PRAGMA journal_mode")).scalar_one() if self._path else "wal"
            if journal == "wal" and not migrate.pending(tx, history, self._where):
                return
        if self._path:
            with self._turn(WAIT_S), store_faults(self._where), self._engine.connect() as plain:
                plain.execution_options(**{_BEGIN: ()}).execute(text("PRAGMA journal_mode = WAL"))
        with self.write(keys=False) as tx:
            if not migrate.pending(tx, history, self._where):  # another process was first
                return
            if migrate.revision(tx) is None:
                migrate.lay_out(tx, history)
            elif upgrade:
                migrate.upgrade(tx, history, self._engine, self._path)
            else:
                how = "end all workers, then open it once with `upgrade=True`"
                raise StoreFault(f"{self._where} has an older schema", next=how)


def _file_of(url: str) -> Path | None:
    """The file of an SQLite URL: all that follows the slashes, as it is, so that any path can be written."""
    scheme, _, rest = url.partition("://")
    if not scheme.startswith("sqlite"):
        return None
    if not rest.startswith("/") or rest in {"/", "/:memory:"}:
        raise UsageError("the database URL names no file", next="write sqlite:///PATH")
    return Path(rest[1:]).absolute()


def _server_of(url: str) -> URL:
    with suppress(ArgumentError):
        parsed = make_url(url)
        if parsed.get_backend_name() == "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
    raise UsageError(
        "the database URL cannot be read", next="write sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"
    )


def _prepare_file(path: Path) -> None:
    """Make the file, readable by its owner only: it holds other people's source and prompts.

    One that exists is not opened here: closing it would drop the locks that another Store of this process has on it.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreFault(f"the store {path} cannot be opened", why="it is a folder", next="name a file") from None
    except OSError as error:
        raise os_fault(str(path), error) from error


def _identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another that was put in its place; None where there is none."""
    with suppress(OSError):
        if path:
            seen = path.stat()
            return seen.st_dev, seen.st_ino
    return None


def _sqlite(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), hide_parameters=True)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,
            connect_args={"options": "-c idle_in_transaction_session_timeout=10000", "connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise UsageError("PostgreSQL needs a driver", why=str(error), next="pip install 'psycopg[binary]'") from error


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself
    for pragma in (f"busy_timeout = {int(WAIT_S * 1000)}", "foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(tx: Connection) -> None:
    for statement in tx.get_execution_options().get(_BEGIN, ("BEGIN",)):
        tx.exec_driver_sql(statement)
