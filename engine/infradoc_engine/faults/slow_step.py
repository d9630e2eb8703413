"""Every step takes longer than its work."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.engine import Engine
from infradoc_engine.faults.base import Parameter, Target


class SlowStep:
    """A pause before each step. Nothing that is measured explains it: a control for rules that look at speed alone."""

    name: ClassVar[str] = "slow_step"
    means: ClassVar[str] = "adds so many seconds to each step"
    provokes: ClassVar[str] = ""
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter("added to each step", 0.05, 0.0, 60.0),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._engine: Engine = target.engine
        self._seconds = values["seconds"]
        self._end = threading.Event()
        self._engine.before_step.append(self._pause)

    def _pause(self) -> None:
        self._end.wait(self._seconds)

    def stop(self) -> None:
        self._end.set()
        self._engine.before_step.remove(self._pause)
