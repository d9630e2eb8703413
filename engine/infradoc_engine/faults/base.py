"""What a fault is, what it may touch, and the bounds of its parameters."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from infradoc_engine.engine import Engine


class FaultError(ValueError):
    """A fault that is not known, has a wrong parameter or cannot start; one sentence. `status` as in HTTP."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Target:
    """The server that a fault breaks."""

    engine: Engine
    device: torch.device
    main_loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number; whole where `default` is."""

    means: str
    default: float
    low: float
    high: float

    def check(self, name: str, value: object) -> float:
        """The value in its own type; raises FaultError with the bounds."""
        whole = isinstance(self.default, int)
        if isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high:
            if not whole:
                return float(value)
            if value == int(value):
                return int(value)
        kind = "a whole number" if whole else "a number"
        raise FaultError(f"{name} cannot be {reprlib.repr(value)}; give {kind} from {self.low:g} to {self.high:g}.")


class Fault(Protocol):
    """One way to break the engine. `start` and `stop` may come from any thread but the engine's, never both at once."""

    name: ClassVar[str]
    means: ClassVar[str]
    provokes: ClassVar[str]  # finding id; empty for a control that should provoke none
    parameters: ClassVar[Mapping[str, Parameter]]

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        """Break it. Raises FaultError, or MemoryError when the memory it wants is refused; nothing is broken then."""
        ...

    def stop(self) -> None:
        """Take it back, as far as that is possible; what was leaked stays leaked."""
        ...
