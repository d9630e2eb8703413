"""A front end that is busy with itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.faults.base import Parameter, Target


class BusyFrontEnd:
    """The event loop of the API computes for a share of each tenth of a second, as slow request handling would."""

    name: ClassVar[str] = "busy_front_end"
    means: ClassVar[str] = "the event loop of the API is busy for a share of the time"
    provokes: ClassVar[str] = "cpu-frontend-bottleneck"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "share": Parameter("share of the time", 0.8, 0.01, 0.98),
        "period_seconds": Parameter("length of one round", 0.1, 0.005, 5.0),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._loop: asyncio.AbstractEventLoop = target.main_loop
        self._busy = values["share"] * values["period_seconds"]
        self._idle = values["period_seconds"] - self._busy
        self._on = True
        self._loop.call_soon_threadsafe(self._round)

    def _round(self) -> None:
        if not self._on:
            return
        end = time.monotonic() + self._busy
        while time.monotonic() < end:
            pass
        self._loop.call_later(self._idle, self._round)

    def stop(self) -> None:
        self._on = False
