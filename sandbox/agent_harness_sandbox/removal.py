"""Work that nobody waits for: containers whose inside is dead already are taken away in the background."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable

from agent_harness.errors import HarnessError

AT_EXIT_S = 30.0


class Background:
    """A thread for each job, one of which works at a time. Process-wide, and safe to use after a fork."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has neither the threads nor the containers."""
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._threads: list[threading.Thread] = []

    def put(self, job: Callable[[], None]) -> None:
        """Do this some time soon, at the latest before the process ends."""
        thread = threading.Thread(target=self._work, args=(job,), name="sandbox-removal", daemon=True)
        with self._lock:
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the process is ending: somebody has to wait after all
                self._work(job)
                return
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def wait(self, seconds: float) -> bool:
        """Whether everything that was put is done within this time."""
        until = time.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, job: Callable[[], None]) -> None:
        with self._turn:
            try:
                job()
            except HarnessError as fault:  # said, not raised: whoever closed the sandbox has its result already
                logging.getLogger(__name__).warning("%s; %s", fault.line, fault.next)


BACKGROUND = Background()
atexit.register(BACKGROUND.wait, AT_EXIT_S)
os.register_at_fork(after_in_child=BACKGROUND.forget)
