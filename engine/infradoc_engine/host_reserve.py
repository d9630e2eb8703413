"""Memory set aside for what is no tensor, so that a full device does not take the front end's memory as well.

On a GPU the device's memory is not the host's: requests are read and /metrics answers however full the device is. Where
a limit on the whole process stands for the device (see `MemoryLimit`), a step that takes all of it left the event loop
not even what it reads a request into: each connection was reset until some step gave memory back.
"""

from __future__ import annotations

import ctypes
from functools import cache

# Many of the smaller, which the middling tensors of a short step do not fit into: requests are read by 64 KiB.
CHUNKS = ((24, 1 << 20), (32, 300 << 10), (128, 72 << 10))  # number and bytes
SMALL_BYTES = 16 << 20
_OBJECT_BYTES = 512  # the largest object that Python's own allocator keeps in its arenas of 1 MiB
_HEADER_BYTES = 33  # of a `bytes`, its closing zero included
_OBJECTS_PER_PIN = 1000  # of the 1984 that an arena takes: one kept in each holds it for life


@cache
def set_aside() -> object:
    """Set `CHUNKS` aside in the heap and `SMALL_BYTES` in Python's arenas, once in a process and for its life.

    The pieces are not touched, so they take address space but no memory; the arenas take theirs. Returns what must stay
    referenced. Nothing of the heap off glibc.
    """
    _free_chunks()
    objects = [bytes(_OBJECT_BYTES - _HEADER_BYTES) for _ in range(SMALL_BYTES // _OBJECT_BYTES)]
    return objects[::_OBJECTS_PER_PIN]


def _free_chunks() -> None:
    """Free pieces that stay apart: joined they would serve large tensors.

    Each is cut down to its first bytes, which are never freed, so the rest lies free between two of them. (A small
    block asked for on its own would come from some hole elsewhere.)
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.realloc.restype, libc.realloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
    except (OSError, AttributeError):
        return
    chunks = [libc.malloc(size) for number, size in (*CHUNKS, (1, 1)) for _ in range(number)]
    for chunk in filter(None, chunks):
        libc.realloc(chunk, 1)
