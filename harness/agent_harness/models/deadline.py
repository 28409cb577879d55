"""A deadline that holds whatever the called code does with its own."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from agent_harness.errors import Cancelled, ModelFault, ModelFaultKind

T = TypeVar("T")


class Late(ModelFault):
    """No answer in time. The call was left behind: what became of it is not known."""

    def __init__(self, seconds: float) -> None:
        what = f"no answer within {seconds:.0f} s"
        super().__init__(ModelFaultKind.RETRY, what, next="raise the route's timeout_s")


def within(seconds: float, work: Callable[[], T], stop: threading.Event | None = None) -> T:
    """`work()`, run in a thread of its own that is left behind when the deadline passes or `stop` is set.

    Raises what `work` raised, Late at the deadline, Cancelled on `stop`."""
    outcome: Future[T] = Future()

    def body() -> None:
        with suppress(BaseException):  # whoever waits is told
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)
                raise

    threading.Thread(target=body, name="model-call", daemon=True).start()
    end = time.monotonic() + seconds
    while not wait([outcome], min(0.1, max(0.0, end - time.monotonic()))).done:
        if stop is not None and stop.is_set():
            raise Cancelled("the model call was left because the run was cancelled")
        if time.monotonic() >= end:
            raise Late(seconds)
    return outcome.result()
