"""What every step gets: the device, how thorough to be, and how much time is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

Row = dict[str, Any]


@dataclass(slots=True)
class Look:
    """`dry`: no GPU; tiny shapes on the CPU, kernels interpreted, so that the step itself is seen to work."""

    device: torch.device
    quick: bool = False
    dry: bool = False
    copy_bytes_per_second: float | None = None  # of the copy step, read and written bytes together
    deadline: float = field(default_factory=lambda: time.monotonic() + 600.0)

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16, the type that is served; the interpreter is only sure of float32."""
        return torch.float32 if self.dry else torch.bfloat16

    def left(self) -> float:
        """Seconds until the step should have ended."""
        return self.deadline - time.monotonic()

    def free_bytes(self) -> int:
        """Device memory that can be taken now, freed tensors of this process included."""
        if self.device.type != "cuda":
            return 1 << 28
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.device)[0])

    def share_of_copy(self, bytes_per_second: float) -> float | None:
        """Of the measured copy bandwidth; None when that was not measured in this run."""
        return bytes_per_second / self.copy_bytes_per_second if self.copy_bytes_per_second else None
