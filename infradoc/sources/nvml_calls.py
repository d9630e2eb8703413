"""Guarded NVML calls: each answer of the driver is a value, a "never ask again", a "not this time", or a lost GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# NVML return codes by what they mean for the next tick (nvml.h, `nvmlReturn_t`).
NOT_SUPPORTED = 3
NO_PERMISSION = 4
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15
RESET_REQUIRED = 16
MISMATCH = 18
# Invalid argument, not supported, no permission, function not found, no ECC on vGPU, version mismatch, deprecated:
# the next tick would get the same answer.
_FOR_EVER = frozenset({2, NOT_SUPPORTED, NO_PERMISSION, 13, 22, 25, 26})
_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED})


class GpuGone(Exception):
    """The device no longer answers; `code` is the NVML return code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


class Calls:
    """Calls on one device. Remembers what this device does not support and asks for it no more.

    `refused` maps the name of such a call to its return code, `made` counts calls of this object.
    """

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.refused: dict[str, int] = {}
        self.made = 0

    def get(self, name: str, *arguments: Any, key: str = "") -> Any:
        """The value of `nvml.<name>(*arguments)`, None where the device does not give it now or at all.

        key: what is remembered as unsupported, where one function serves several figures. Raises GpuGone.
        """
        label = key or name
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if label in self.refused or function is None:  # an older nvidia-ml-py lacks the newer calls
            return None
        self.made += 1
        try:
            return function(*arguments)
        except self.nvml.NVMLError as error:
            code = int(getattr(error, "value", 999))
            if code in _GONE:
                raise GpuGone(code) from error
            if code in _FOR_EVER:
                self.refused[label] = code
            return None

    def first(self, *names: str, arguments: tuple[Any, ...]) -> Any:
        """The value of the first of several spellings of one call that this driver knows."""
        for name in names:
            value = self.get(name, *arguments)
            if value is not None:
                return value
        return None

    def denied(self) -> list[str]:
        """Names of calls that need more rights than this user has."""
        return sorted(name for name, code in self.refused.items() if code == NO_PERMISSION)
