"""Whose the memory of a GPU is: plain arithmetic on what the driver and torch's allocator say."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A look at one GPU, in bytes."""

    free: int  # of the device, as the driver says
    total: int
    reserved: int  # held by torch's allocator in this process, free parts of it included

    def others(self, device_bytes: int, beside_torch: int = 0) -> int:
        """What other processes and this one's driver context take of the engine's share, `device_bytes` of the total.

        `beside_torch` of this process is known and counted elsewhere (instantiated graphs). A share below the total
        leaves room outside it: others count only as far as they reach into the share.
        """
        outside = max(self.total - self.free - self.reserved - beside_torch, 0)
        return max(outside - max(self.total - device_bytes, 0), 0)


def look(device: torch.device) -> GpuMemory:
    """What the driver and the allocator say now."""
    free, total = torch.cuda.mem_get_info(device)
    return GpuMemory(free, total, torch.cuda.memory_reserved(device))
