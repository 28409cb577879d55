"""A deadline that holds whatever the called code does with its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from agent_harness.errors import Cancelled, ModelFault, ModelFaultKind

T = TypeVar("T")


class Late(ModelFault):
    """No answer in time. The call was left behind: what became of it is not known."""

    def __init__(self, seconds: float) -> None:
        what = f"no answer within {seconds:.0f} s"
        super().__init__(ModelFaultKind.RETRY, what, next="raise the route's timeout_s")


class _Outcome(Generic[T]):
    """What the thread brought: a value, or the error that left its `with` block."""

    value: T

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.done = threading.Event()

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.error = error
        self.done.set()
        return True


def within(seconds: float, work: Callable[[], T], stop: threading.Event | None = None) -> T:
    """`work()`, run in a thread of its own that is left behind when the deadline passes or `stop` is set.

    Raises what `work` raised, Late at the deadline, Cancelled on `stop`."""
    outcome: _Outcome[T] = _Outcome()

    def body() -> None:
        with outcome:
            outcome.value = work()

    threading.Thread(target=body, name="model-call", daemon=True).start()
    end = time.monotonic() + seconds
    while not outcome.done.wait(min(0.1, max(0.0, end - time.monotonic()))):
        if stop is not None and stop.is_set():
            raise Cancelled("the model call was left because the run was cancelled")
        if time.monotonic() >= end:
            raise Late(seconds)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
