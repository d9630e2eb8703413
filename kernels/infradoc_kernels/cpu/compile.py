"""How the CPU kernels are compiled, kept and run by torch's own threads.

A kernel is a C function `void body(int64* args)`. The threads of torch's OpenMP pool run it together through libgomp's
`GOMP_parallel` and take work items from a shared counter until none is left. numba's own pool would stand beside
torch's: two pools that spin on the same cores wait for each other, and each launch costs ten times more.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import torch
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target

# Sums may be reordered (that is what lets them vectorise) and multiply-adds fused. NaN and infinity keep their
# meaning: -inf masks a score, and a kernel that assumed them away could turn a masked slot into garbage.
_OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}
TEAM_VALUES = 1 << 15  # below so many numbers one thread is done before a second has begun
_POINTER: Any = types.CPointer
_BODY = types.void(_POINTER(types.int64))


def _source() -> int:
    folder = Path(__file__).parent
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))


class _Cache(FunctionCache):
    """numba's cache on disk under a key of our own: all sources here, and the constants that a kernel was made for.

    numba's key looks at the kernel's file only, not at its helpers, and holds helper objects that differ in each
    process: such an entry is either stale or never found again. Its index is a file that two processes may write at
    once, and then one's code stands under the other's key: so each key has files of its own. What cannot be read (cut
    off, written by somebody else) or kept (disk full) is compiled anew.
    """

    _SOURCE = _source()

    def __init__(self, function: Callable[..., Any], constants: tuple[int, ...]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._constants = constants
        machine = cpu_target.target_context.codegen().magic_tuple()
        files = zlib.crc32(repr((machine, constants)).encode())
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            self._cache_path, f"{self._impl.filename_base}-{files:08x}", self._impl.locator.get_source_stamp()
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._SOURCE, self._constants

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # unpickling rubbish may raise anything
            with contextlib.suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _keep(compiled: Any, function: Callable[..., Any], constants: tuple[int, ...]) -> Any:
    # Without a folder to write to, beside the source or in the user's cache, each start compiles anew.
    with contextlib.suppress(RuntimeError):
        compiled._cache = _Cache(function, constants)
    return compiled


def part(function: Callable[..., Any]) -> Any:
    """A helper that kernels call; compiled with them."""
    return numba.njit(**_OPTIONS)(function)


def body(*constants: int) -> Callable[[Callable[[Any], None]], int]:
    """Compiles a kernel body and gives its address; `constants` are all values that it closes over.

    It takes a pointer to int64 arguments, of which the first is the address of the shared counter of work items.
    """

    def decorate(function: Callable[[Any], None]) -> int:
        compiled = _keep(CFunc(function, (_BODY.args, _BODY.return_type), {}, dict(_OPTIONS)), function, constants)
        compiled.compile()
        _KEPT.append(compiled)
        return int(compiled.address)

    return decorate


_KEPT: list[Any] = []  # the code behind an address lives as long as its owner


def entry(signature: Any, *, nogil: bool) -> Callable[[Callable[..., Any]], Any]:
    """A function called from Python with plain numbers, compiled when it is decorated."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = _keep(numba.njit(nogil=nogil, **_OPTIONS)(function), function, ())
        compiled.compile(signature)
        compiled.disable_compile()
        return compiled

    return decorate


@functools.cache
def gomp_parallel() -> int:
    """Address of the `GOMP_parallel` that torch's own threads stand behind; 0 where torch uses another runtime."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


@functools.cache
def bits_of(value: float) -> int:
    """The bits of a float32, as an int: how a number travels among int64 arguments."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


def team_size() -> int:
    """Threads that a kernel runs on: those that torch computes with in the calling thread."""
    return torch.get_num_threads() if gomp_parallel() else 1
