"""SIGINT, SIGTERM and SIGHUP: the first asks a run to stop and save, the second ends it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

WORDS = b"\nagent-harness: stopping; the state is being saved (once more ends at once)\n"


class Stopped(BaseException):
    """A signal ended the command. Not an Exception, so that nothing between takes it for a failure."""


class _Seen:
    """What came, and whom to tell. One per process, as signals are."""

    number: int = 0
    cancelled: threading.Event | None = None


def install() -> None:
    """Take the signals, except those that whoever started us had ignored (`nohup`, a background job)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on)


def _on(number: int, frame: FrameType | None) -> None:
    del frame
    first = not _Seen.number
    _Seen.number = number
    if _Seen.cancelled is None or not first:
        raise Stopped
    _Seen.cancelled.set()
    with suppress(OSError):
        os.write(2, WORDS)  # not sys.stderr: the signal may have come in the middle of a write to it


def code() -> int:
    """The exit code of the signal that came, 0 if none did."""
    return 128 + _Seen.number if _Seen.number else 0


@contextmanager
def cancelling() -> Iterator[threading.Event]:
    """An event that the first signal sets, instead of ending the command."""
    _Seen.cancelled = threading.Event()
    try:
        yield _Seen.cancelled
    finally:
        _Seen.cancelled = None
