"""Where the figures come from."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib import import_module

import torch

from infradoc_engine.gpu_check import nvml_calls
from infradoc_engine.gpu_check.look import Look, Row

_ABSENT_ALLOWED = ("gguf", "safetensors", "tokenizers", "psutil", "platformdirs", "starlette", "pynvml", "numba")


def run(look: Look) -> Iterator[Row]:
    """One row."""
    row: Row = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": import_module("triton").__version__,
        "cuda": torch.version.cuda,
        "cpu_count": os.cpu_count(),
        "kernel": platform.release(),
        "absent": [name for name in _ABSENT_ALLOWED if importlib.util.find_spec(name) is None],
    }
    if look.device.type == "cuda":
        found = torch.cuda.get_device_properties(look.device)
        free, total = torch.cuda.mem_get_info(look.device)
        row |= {
            "device": found.name,
            "capability": f"{found.major}.{found.minor}",
            "multiprocessors": found.multi_processor_count,
            "l2_bytes": getattr(found, "L2_cache_size", None),
            "total_bytes": total,
            "free_bytes": free,
            **nvml_calls.driver_and_clocks(),
        }
    yield row
