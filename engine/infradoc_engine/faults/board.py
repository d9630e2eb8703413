"""Switches faults on and off and says which are on."""

from __future__ import annotations

import reprlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from infradoc_engine.faults.all import FAULTS
from infradoc_engine.faults.base import Fault, FaultError, Target
from infradoc_engine.near import near


@dataclass(frozen=True, slots=True)
class _Active:
    fault: Fault
    values: dict[str, float]
    since: float  # Unix time


class FaultBoard:
    """`enabled` is decided at start: without it nothing can be broken. Any thread but the engine's may call."""

    def __init__(self, target: Target, *, enabled: bool) -> None:
        self.enabled = enabled
        self._target = target
        self._active: dict[str, _Active] = {}
        self._lock = threading.Lock()

    def set(self, name: str, active: bool, parameters: Mapping[str, object] | None = None) -> None:
        """Switch a fault on, with these parameters instead of those it has, or off.

        Raises FaultError: 403 not enabled, 422 unknown name or bad parameter, 409 when it cannot start.
        """
        if not self.enabled:
            raise FaultError("Faults are off here; start the server with --enable-faults.", 403)
        kind = _find(name)
        values = _values(kind, parameters or {})
        with self._lock:
            present = self._active.pop(name, None)
            if present is not None:
                present.fault.stop()
            if active:
                self._active[name] = _Active(_started(kind, self._target, values), values, time.time())

    def stop_all(self) -> None:
        """Switch every fault off."""
        with self._lock:
            for active in self._active.values():
                active.fault.stop()
            self._active.clear()

    def describe(self) -> dict[str, object]:
        """As GET /admin/faults shows it."""
        return {"enabled": self.enabled, "faults": [self._describe(kind) for kind in FAULTS.values()]}

    def _describe(self, kind: type[Fault]) -> dict[str, object]:
        active = self._active.get(kind.name)
        parameters = {
            name: {
                "means": parameter.means,
                "default": parameter.default,
                "bounds": [parameter.low, parameter.high],
                "value": None if active is None else active.values[name],
            }
            for name, parameter in kind.parameters.items()
        }
        return {
            "name": kind.name,
            "means": kind.means,
            "provokes": kind.provokes,
            "parameters": parameters,
            "active": active is not None,
            "since": None if active is None else active.since,
        }


def parse_fault(text: str) -> tuple[str, dict[str, object]]:
    """(name, parameters) of NAME[:key=value,...]; raises FaultError."""
    name, _, rest = text.partition(":")
    parameters: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            parameters[key.strip()] = float(value)
        except ValueError:
            raise FaultError(f"{part!r} is not KEY=NUMBER.") from None
    kind = _find(name)
    _values(kind, parameters)
    return name, parameters


def _started(kind: type[Fault], target: Target, values: Mapping[str, float]) -> Fault:
    fault = kind()
    try:
        fault.start(target, values)
    except (MemoryError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FaultError(f"{kind.name} cannot start: {reason}.", 409) from None
    return fault


def _find(name: str) -> type[Fault]:
    if name in FAULTS:
        return FAULTS[name]
    meant = near(name, FAULTS)
    hint = f"did you mean {meant}?" if meant else f"known: {', '.join(FAULTS)}."
    raise FaultError(f"There is no fault {reprlib.repr(name)}; {hint}")


def _values(kind: type[Fault], given: Mapping[str, object]) -> dict[str, float]:
    for name in given:
        if name not in kind.parameters:
            known = ", ".join(kind.parameters) or "none"
            raise FaultError(f"{kind.name} has no parameter {reprlib.repr(name)}; it has: {known}.")
    return {name: p.check(f"{kind.name}.{name}", given.get(name, p.default)) for name, p in kind.parameters.items()}
