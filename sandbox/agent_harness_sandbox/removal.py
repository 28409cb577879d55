"""Work that nobody waits for: containers whose inside is dead already are taken away in the background."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from agent_harness.errors import HarnessError

IDLE_S = 5.0
AT_EXIT_S = 30.0


class Background:
    """One thread for a queue of jobs, there only while there are any. Process-wide, and safe to use after a fork."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has neither the thread nor the containers."""
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._busy = 0
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None]) -> None:
        """Do this some time soon, at the latest before the process ends."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sandbox-removal", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether everything that was put is done within this time."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._jobs or self._busy:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs and not self._changed.wait_for(lambda: self._jobs, IDLE_S):
                    self._thread = None
                    return
                job = self._jobs.popleft()
                self._busy += 1
            try:
                job()
            except HarnessError as fault:  # said, not raised: whoever closed the sandbox has its result already
                logging.getLogger(__name__).warning("%s; %s", fault.line, fault.next)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()


BACKGROUND = Background()
atexit.register(BACKGROUND.wait, AT_EXIT_S)
os.register_at_fork(after_in_child=BACKGROUND.forget)
