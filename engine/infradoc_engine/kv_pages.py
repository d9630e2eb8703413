"""Memory of a KV tensor: on the CPU pages of its own, so that freeing it gives them back to the system at once.

The C library keeps freed pieces of less than 32 MiB for itself; under a limit on the process's data they would still
count, and a pool that shrank would have made room for nobody.
"""

from __future__ import annotations

import errno
import math
import mmap
from collections.abc import Sequence

import torch

_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def empty_pages(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialised tensor; raises MemoryError or torch's own error when the memory is refused."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not _PRIVATE or not num_bytes:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    try:
        pages = mmap.mmap(-1, num_bytes, flags=_PRIVATE)  # lives as long as the tensor that is made of it
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(f"can't allocate memory: {num_bytes} bytes") from error
        raise
    return torch.frombuffer(pages, dtype=dtype).view(tuple(shape))
