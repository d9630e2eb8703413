"""Neighbours that take the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.faults.base import FaultError, Parameter, Target

# Ends by itself when the server is gone, however that ended.
_BURN = """
import os
while os.getppid() == {parent}:
    for _ in range(3_000_000):
        pass
"""


class CpuBurn:
    """Busy processes beside the server, at its own priority."""

    name: ClassVar[str] = "cpu_burn"
    means: ClassVar[str] = "so many busy processes compete for the cores"
    provokes: ClassVar[str] = "cpu-starved"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "processes": Parameter("busy processes", 4, 1, 256),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        command = [sys.executable, "-S", "-E", "-c", _BURN.format(parent=os.getpid())]
        try:
            for _ in range(int(values["processes"])):
                self._children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        except OSError as error:
            self.stop()
            raise FaultError(f"cpu_burn cannot start a process: {error.strerror}.", 409) from None

    def stop(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait()
        self._children.clear()
