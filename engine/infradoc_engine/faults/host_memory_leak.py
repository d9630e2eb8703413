"""A process that grows and grows."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.faults.base import Parameter, Target

_TICK_SECONDS = 0.25


class HostMemoryLeak:
    """A thread that takes and touches memory at a steady rate until it is refused; all of it is given back at the end.

    Pages of its own, for the C library would keep what is freed.
    """

    name: ClassVar[str] = "host_memory_leak"
    means: ClassVar[str] = "the process grows by so many bytes a second"
    provokes: ClassVar[str] = "memory-leak"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "bytes_per_second": Parameter("growth of the resident memory", 8 << 20, 4096, 1 << 34),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._piece = max(int(values["bytes_per_second"] * _TICK_SECONDS), mmap.PAGESIZE)
        self._held: list[mmap.mmap] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._grow, name="host_memory_leak", daemon=True)
        self._thread.start()

    def _grow(self) -> None:
        while not self._end.wait(_TICK_SECONDS):
            try:
                pages = mmap.mmap(-1, self._piece, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError:  # as large as it may become
                return
            for offset in range(0, self._piece, mmap.PAGESIZE):
                pages[offset] = 1
            self._held.append(pages)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        for pages in self._held:
            pages.close()
        self._held.clear()
