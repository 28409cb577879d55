"""What the database says, in one clear line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agent_harness.errors import StoreFault, UsageError

_NEXT = (
    ("disk is full|no space left", "free space on that disk, then run it again; nothing was half written"),
    ("not a database", "name another file with --db, or restore a backup"),
    ("malformed", "restore a backup (*.backup-* beside the file), or copy what can be read with `sqlite3 .recover`"),
    ("locked", "another program holds the database: end it, or try again"),
    ("lock timeout", "another worker holds the database: try again"),
    ("unable to open", "check that the folder exists and that this user may write in it"),
    ("readonly|permission denied", "give this user write access to the file and its folder"),
    ("connection", "check that the server runs, and the host, user and password in the URL"),
)


@contextmanager
def store_faults(where: str) -> Iterator[None]:
    """Turn the database's and the file system's errors into StoreFault; `where` names the store for people."""
    try:
        yield
    except DBAPIError as error:
        # Only the driver's own words: the statement's values may be anything.
        raise _fault(where, str(error.orig)) from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object[:80]!a} is no text that can be stored", next="write it in UTF-8") from error
    except SQLAlchemyError as error:
        raise _fault(where, str(error)) from error


def os_fault(where: str, error: OSError) -> StoreFault:
    """A StoreFault for a file of the store."""
    return _fault(where, f"{error.strerror or error} ({error.filename})")


def _fault(where: str, why: str) -> StoreFault:
    hint = next((hint for signs, hint in _NEXT if re.search(signs, why, re.IGNORECASE)), "")
    return StoreFault(f"the store {where} could not do it", why=why, next=hint)
