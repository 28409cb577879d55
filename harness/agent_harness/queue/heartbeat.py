"""Keeping a claim alive, and knowing when it is not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from agent_harness.errors import ClaimLost, HarnessError
from agent_harness.queue.core import TTL_S, Queue
from agent_harness.types import Claim

_LOOK_S = 1.0


class Heartbeat:
    """Keeps a claim alive while its block runs. It renews the claim from one thread and watches the time from another:
    a database that does not answer stops the first, never the second.

    `on_lost` is called once, from another thread, when the claim was taken away, or when it could not be renewed for
    so long that it soon may be; it must stop the work at once.
    """

    def __init__(self, queue: Queue, claim: Claim, on_lost: Callable[[], None], *, ttl_s: float = TTL_S) -> None:
        self._queue, self._claim, self._clock = queue, claim, queue.clock
        self._on_lost, self._ttl_s = on_lost, ttl_s
        self._safe_s = max(ttl_s - 10.0, ttl_s * 5 / 6)
        self._stop = threading.Event()
        self._once = threading.Lock()
        self.lost = False
        left_s = (claim.expires_ms - queue.clock.now_ms()) / 1000
        self._deadline = queue.clock.monotonic() + min(self._safe_s, left_s - (ttl_s - self._safe_s))
        self._threads = [
            threading.Thread(target=work, name=f"heartbeat-{claim.item.id}", daemon=True)
            for work in (self._beat, self._watch)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:  # the first renewal is at once
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:  # after this `on_lost` is not called any more
        with self._once:
            self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(2.0)  # one that waits for the database is left behind; what it does then is harmless

    def _beat(self) -> None:
        while not self._stop.is_set():
            sent = self._clock.monotonic()  # the claim runs from here at the latest
            try:
                self._queue.renew(self._claim, self._ttl_s, wait_s=self._ttl_s / 3)
                self._deadline = sent + self._safe_s
            except ClaimLost:
                self._lose()
            except HarnessError:
                pass  # neither lost nor fine: unknown. The watch decides
            self._stop.wait(self._ttl_s / 3)

    def _watch(self) -> None:
        while not self._stop.is_set():
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                self._lose()
            self._stop.wait(min(max(left, 0.0), _LOOK_S))

    def _lose(self) -> None:
        with self._once:
            if self._stop.is_set():
                return
            self._stop.set()
            self.lost = True
        self._on_lost()


heartbeat = Heartbeat
