"""Which errors say that an allocation was refused. Without torch: the step loop asks too."""

from __future__ import annotations

# What torch's allocators and C++ say; and oneDNN, which reports a refused buffer for its generated code this way.
_REFUSALS = ("can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory", "bad_alloc")
_ONEDNN_REFUSALS = ("could not create a primitive", "could not create a memory", "could not execute a primitive")


def is_out_of_memory(error: BaseException) -> bool:
    """True for the ways in which torch, oneDNN and numpy say that an allocation was refused.

    torch's own OutOfMemoryError is a RuntimeError whose text says so.
    """
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _REFUSALS + _ONEDNN_REFUSALS)
