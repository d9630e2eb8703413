"""Tile sizes, warps, pipeline depth and splits of the paged-attention kernels, and what they check before a launch.

Host arithmetic on shapes: nothing here waits for a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton

from infradoc_kernels.launch import (
    TRITON_NAMES,
    check_dtype,
    check_float,
    check_last_dim,
    check_same_device,
    check_shape,
    next_power_of_2,
)
from infradoc_kernels.paged_batch import PagedBatch

MIN_ROWS = 16  # of a tl.dot operand: the smallest m of the tensor cores' bf16 instructions
LOG2_E = 1.4426950408889634  # the kernels use exp2: one instruction on the GPU, exp is two

# Keys and values of one decode tile. Two tiles in flight and three programs a multiprocessor keep 100 KiB and more on
# their way to each; latency (about 0.8 us) times bandwidth (4.8 TB/s / 132) needs 30 KiB on H200.
DECODE_TILE_BYTES = 32 * 1024
START_COST = 1.5  # of a program, in tiles: filling its pipeline, writing and reading back its partial result
SPLIT_CANDIDATES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128)
MIN_TILES = 4  # a split of fewer tiles spends more on its start than on its keys


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What the choice of tiles depends on."""

    backend: str  # "cuda" | "hip"
    processors: int  # multiprocessors or compute units
    shared_bytes: int  # shared memory one program may ask for


# Shared memory: CUDA programming guide, table of technical specifications; CDNA 3 instruction set, local data share.
KNOWN_LIMITS = {
    "sm_80": DeviceLimits("cuda", 108, 163 * 1024),
    "sm_90": DeviceLimits("cuda", 132, 227 * 1024),
    "sm_100": DeviceLimits("cuda", 148, 227 * 1024),
    "gfx942": DeviceLimits("hip", 304, 64 * 1024),
}


@dataclass(frozen=True, slots=True)
class Tiling:
    """Settings of one launch."""

    rows: int  # of q in one program
    keys: int  # per iteration
    num_warps: int
    num_stages: int  # tiles in flight, plus one
    resident: int = 1  # programs that a multiprocessor holds at a time


@dataclass(frozen=True, slots=True)
class Splits:
    """How decode cuts a context: into at most `count` parts of at least `min_tiles` tiles each.

    The kernel works out each request's own parts from its length, so a launch captured in a CUDA graph stays right
    for every context up to the captured maximum; parts a request does not need end at once.
    """

    count: int
    min_tiles: int


@lru_cache(maxsize=64)
def _gpu_limits(index: int) -> DeviceLimits:
    found = triton.runtime.driver.active.utils.get_device_properties(index)
    backend = "hip" if torch.version.hip else "cuda"
    return DeviceLimits(backend, found["multiprocessor_count"], found["max_shared_mem"])


def limits_of(device: torch.device) -> DeviceLimits:
    """Limits of a GPU; under the interpreter, where any tiling runs, those of sm_90."""
    if device.type != "cuda":
        return KNOWN_LIMITS["sm_90"]
    return _gpu_limits(torch.cuda.current_device() if device.index is None else device.index)


def dot_precision(backend: str, dtype: torch.dtype, head_dim: int) -> str:
    """How tl.dot multiplies float32: three TF32 products on NVIDIA (error near float32's own, on tensor cores; plain
    TF32 is off by 3e-4) as long as their operands fit the registers, else plain float32, which AMD's matrix cores have
    anyway. 16-bit types have one way only."""
    return "tf32x3" if backend == "cuda" and dtype is torch.float32 and head_dim <= 128 else "ieee"


@lru_cache(maxsize=256)
def decode_tiling(group: int, head_dim: int, element_bytes: int, limits: DeviceLimits) -> Tiling:
    """For decode: `group` query heads share a KV head. Larger groups than `rows` take several programs.

    Chosen so that no configuration spills (aot_configurations of the decode kernel holds the corners): float32 keeps
    16 rows, because three TF32 products of more do not fit the registers.
    """
    width = next_power_of_2(head_dim)
    rows = MIN_ROWS if element_bytes == 4 else min(64, max(MIN_ROWS, next_power_of_2(group)))
    key_bytes = 2 * width * element_bytes
    keys = max(MIN_ROWS, min(128, DECODE_TILE_BYTES // key_bytes))
    # Two programs a multiprocessor, two tiles each: one is waited for, one is under way.
    while keys > MIN_ROWS and 4 * keys * key_bytes > limits.shared_bytes:
        keys //= 2
    other = 2 * rows * width * element_bytes + 2048  # q, weights and a copy while layouts change
    stages = 3 if 2 * keys * key_bytes + other <= limits.shared_bytes else 2
    shared = (stages - 1) * keys * key_bytes + other
    warps = 8 if rows * width >= 8192 or key_bytes >= 2048 else 4
    return Tiling(rows, keys, warps, stages, max(1, min(3, limits.shared_bytes // shared)))


@lru_cache(maxsize=256)
def prefill_tiling(
    query_rows: int, head_dim: int, element_bytes: int, has_window: bool, limits: DeviceLimits
) -> Tiling:
    """For prefill: `query_rows` is the longest chunk's queries times the query heads of a KV head.

    128 rows feed two warpgroups of Hopper's matrix instruction. Smaller tiles where the larger spill: sm_80 and kin
    hold both operands of a product in registers, and three TF32 products of float32 hold twice as many.
    """
    width = max(64, next_power_of_2(head_dim))
    wide = limits.shared_bytes > 200 * 1024  # with instructions that take operands from shared memory: sm_90, sm_100
    if element_bytes == 4:
        rows, keys = {64: (64, 32), 128: (32, 32)}.get(width, (16, 16))
    elif width == 256:
        rows, keys = 64, 32
    else:
        rows = 64 if query_rows <= 64 else 128
        # With a window 64 keys beside 128 rows of 64 spill on sm_100, and so do tiles of 64 x 64 x 128.
        keys = 64 if (width == 128 and wide and rows == 128) or (width == 64 and not has_window) else 32
    tile_bytes = 2 * keys * width * element_bytes
    stages = 2 if limits.backend == "hip" else 3
    while keys > MIN_ROWS and (stages - 1) * tile_bytes + rows * width * element_bytes > limits.shared_bytes:
        keys, tile_bytes = keys // 2, tile_bytes // 2
    return Tiling(rows, keys, 4 if element_bytes == 2 and rows == 64 and width <= 128 else 8, stages)


@lru_cache(maxsize=1024)
def choose_splits(num_requests: int, programs_per_request: int, max_tiles: int, total_tiles: int, slots: int) -> Splits:
    """Splits for the least estimated time of a decode launch.

    max_tiles: tiles of keys of the longest request; total_tiles: of all requests; slots: programs that the device holds
    at a time. The estimate deals programs of equal length out in waves over the slots; each costs its tiles plus
    START_COST. It sees both the batch that fills the device unsplit and the one long request among short ones, whose
    parts must be short to end with them.
    """
    mean_tiles = total_tiles / max(1, num_requests)
    best, best_time = Splits(1, max(1, max_tiles)), float("inf")
    for count in SPLIT_CANDIDATES:
        length = max(1, -(-max_tiles // count))
        if count > 1 and length < MIN_TILES:
            break
        programs = num_requests * programs_per_request * math.ceil(mean_tiles / length)
        time = max(1, -(-programs // slots)) * (length + START_COST)
        if time < best_time:
            best, best_time = Splits(count, length), time
    return best


def aot_signature(arguments: Sequence[str], dtype: torch.dtype) -> dict[str, str]:
    """Types of a kernel's arguments that are no constants (those are in capitals), for a compile ahead of time."""

    def kind(name: str) -> str:
        if name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr"):
            return f"*{TRITON_NAMES[dtype]}"
        if name in ("partial_ptr", "peak_ptr"):
            return "*fp32"
        if name.endswith("_ptr"):
            return "*i32"
        return "fp32" if name == "scale_log2" else "i32"

    return {name: kind(name) for name in arguments if not name.isupper()}


def divisible_strides(arguments: Sequence[str]) -> tuple[str, ...]:
    """The strides that are multiples of 16 values at a usual launch: all but the block table's."""
    return tuple(name for name in arguments if name.startswith("stride_") and name != "stride_table")


def check_attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: PagedBatch, out: torch.Tensor
) -> None:
    """Raises ValueError for shapes, types, strides or devices that the attention kernels do not take."""
    check_shape("q", q, (None, None, None))
    check_shape("k_cache", k_cache, (None, None, None, q.shape[2]))
    check_shape("v_cache", v_cache, tuple(k_cache.shape))
    check_shape("out", out, tuple(q.shape))
    check_float("q", q)
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache), ("out", out)):
        check_dtype(name, x, q.dtype)
    for name, x in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache), ("out", out)):
        check_last_dim(name, x)
    check_same_device(q=q, k_cache=k_cache, v_cache=v_cache, out=out, block_tables=batch.block_tables)
    if k_cache.shape[1] == 0 or q.shape[1] % k_cache.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {k_cache.shape[1]} KV heads")
    if q.shape[2] > 256:
        raise ValueError(f"head_dim is {q.shape[2]}, the kernels go to 256")
