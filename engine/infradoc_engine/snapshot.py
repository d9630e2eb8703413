"""Consistent readings of the engine's state that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# The lock is held for milliseconds. Where it is not, the control thread must not stand still with whoever holds it:
# /health answers there too.
PATIENCE_SECONDS = 0.25


class Snapshot(Generic[T]):
    """`read` under `lock`; its last result while the lock is not to be had. Any thread may ask."""

    def __init__(self, lock: threading.Lock, read: Callable[[], T], patience: float = PATIENCE_SECONDS) -> None:
        """Reads once, however long that takes: make it before the engine starts."""
        self._lock = lock
        self._read = read
        self._patience = patience
        with lock:
            self._last = read()

    def __call__(self) -> T:
        if self._lock.acquire(timeout=self._patience):
            try:
                self._last = self._read()
            finally:
                self._lock.release()
        return self._last
