"""Memory of the device that somebody else in the process holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from infradoc_engine.faults.base import Parameter, Target
from infradoc_engine.kv_pages import empty_pages


class MemoryHog:
    """Holds and touches a block of device memory (of this process's data on the CPU), outside of every account."""

    name: ClassVar[str] = "memory_hog"
    means: ClassVar[str] = "holds so many bytes of device memory inside the engine process"
    provokes: ClassVar[str] = "oom-utilization-too-high"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "bytes": Parameter("bytes that are held", 256 << 20, 1, 1 << 40),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._device = target.device
        self._held: torch.Tensor | None = empty_pages((int(values["bytes"]),), torch.uint8, target.device).fill_(1)

    def stop(self) -> None:
        self._held = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # torch's allocator would keep it from the device
