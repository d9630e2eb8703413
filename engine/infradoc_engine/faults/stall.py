"""The step loop stands still."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.engine import Engine
from infradoc_engine.faults.base import Parameter, Target


class Stall:
    """The next step waits, and with it every change that needs the engine thread, until the fault ends."""

    name: ClassVar[str] = "stall"
    means: ClassVar[str] = "the step loop sleeps, once, while requests wait"
    provokes: ClassVar[str] = "engine-stalled"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter("how long it sleeps", 3600.0, 0.0, 86400.0),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._engine: Engine = target.engine
        self._seconds = values["seconds"]
        self._end = threading.Event()
        self._engine.before_step.append(self._sleep)

    def _sleep(self) -> None:
        self._end.wait(self._seconds)
        self._end.set()  # it stalls once

    def stop(self) -> None:
        self._end.set()
        self._engine.before_step.remove(self._sleep)
