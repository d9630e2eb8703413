"""Memory that is given back, and the sentence for memory that was refused."""

from __future__ import annotations

from traceback import clear_frames

import torch

from infradoc_engine.budget import MemoryBudget
from infradoc_engine.memory import MIB, NotEnoughMemory, trim_heap
from infradoc_engine.refusals import is_out_of_memory


def give_back(device: torch.device) -> None:
    """Returns freed memory to the system and the device, where others may need it and readings count it."""
    trim_heap()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def refusal(budget: MemoryBudget, error: Exception, what: str, tokens: int | None) -> Exception:
    """NotEnoughMemory for a refused allocation; any other error as it is."""
    if not is_out_of_memory(error) or isinstance(error, NotEnoughMemory):
        return error
    clear_frames(error.__traceback__)  # they hold the tensors of the failed work
    give_back(budget.device)  # what it freed shall serve the next, also as fresh maps
    size = "" if tokens is None else f" of {tokens} tokens"
    on_gpu = budget.device.type == "cuda"
    account = budget.account() if budget.weight_bytes or on_gpu else {}
    parts = ", ".join(f"{part} {size // MIB} MiB" for part, size in account.items() if size)
    return NotEnoughMemory(
        f"No memory for {what}{size}: the allocator refused within {budget.device_bytes // MIB} MiB of device memory"
        f"{f' ({parts})' if parts else ''}; lower max_num_batched_tokens or the KV pool, or "
        f"{'free what other processes hold of the device' if on_gpu else 'raise device_memory_bytes'}.",
        account,
    )
