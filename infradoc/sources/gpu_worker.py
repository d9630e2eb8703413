"""A thread that makes calls into a driver: one that never returns holds this thread, not whoever waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs calls in order on a daemon thread, which begins with the first call.

    No `ThreadPoolExecutor`: the interpreter joins its threads at exit, so a driver that hangs would hang the exit too.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] | None = None

    def run(self, call: Callable[[], T]) -> Future[T]:
        """Have `call` made; its value, or what it raised, comes with the future."""
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def stop(self) -> None:
        """End the thread once its calls have returned. Never waits; a later call begins a new thread."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := calls.get()) is not None:
        call, future = item
        try:
            value = call()
        except BaseException as error:  # raised again where the value is asked for
            future.set_exception(error)
        else:
            future.set_result(value)
