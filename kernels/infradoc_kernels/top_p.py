"""Top-k and top-p by a threshold search over each row: no sort, no host synchronisation.

The tokens that stay are those above a probability t, and the first few of those equal to it. Non-negative floats order
as their bits do, so t is found among the integers from 0 to the bits of 1.0: the smallest one above which there is less
than the wanted mass (or count). A pass over the row tries four places at once; 13 passes settle 2^30 of them. Sums
run in float32 in BLOCK lanes, at most 40 additions each for 160,000 tokens, and the lanes are added up in float64: as
good as the probabilities themselves, without the float64 units that most GPUs lack. In a fixed order sums of
non-negative floats never fall when an addend grows, so the search is sound in spite of rounding.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from infradoc_kernels import launch
from infradoc_kernels.aot import AotConfiguration

BLOCK = 4096
PIVOTS = 4
NUM_WARPS = 16
MAX_VOCAB = 1 << 24  # counts are kept in float32


@triton.jit
def _above(row_ptr, vocab_size, pivots, COUNT: tl.constexpr, BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """Mass (or count) of the probabilities whose bits are above each pivot: [PIVOTS] float64."""
    total = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        prob = tl.load(row_ptr + column, mask=column < vocab_size, other=0.0)
        over = prob.to(tl.int32, bitcast=True)[None, :] > pivots[:, None]
        if COUNT:
            total += over.to(tl.float32)
        else:
            total += tl.where(over, prob[None, :], 0.0)
    return tl.sum(total.to(tl.float64), axis=1)


@triton.jit
def _search(row_ptr, vocab_size, limit, COUNT: tl.constexpr, BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """The smallest bits above which there is less than `limit`, and what there is above them."""
    low = tl.full([], -1, tl.int64)  # above this there is too much
    high = tl.full([], 0x3F800000, tl.int64)  # bits of 1.0: nothing is above
    found = tl.full([], 0.0, tl.float64)
    while high - low > 1:
        pivots = low + (high - low) * (tl.arange(0, PIVOTS) + 1) // (PIVOTS + 1)
        there = _above(row_ptr, vocab_size, pivots.to(tl.int32), COUNT, BLOCK, PIVOTS)
        enough = there < limit
        found = tl.maximum(found, tl.max(tl.where(enough, there, 0.0), axis=0))
        high = tl.minimum(high, tl.min(tl.where(enough, pivots, high), axis=0))
        low = tl.maximum(low, tl.max(tl.where(enough, low, pivots), axis=0))
    return high.to(tl.int32), found


@triton.jit
def _top_p_mask_kernel(
    probs_ptr,
    top_k_ptr,
    top_p_ptr,
    kept_ptr,
    stride_probs,
    vocab_size,
    BLOCK: tl.constexpr,
    PIVOTS: tl.constexpr,
):
    # One program a row. int64: rows times vocabulary passes 2^31 from 14,000 rows on.
    row = tl.program_id(0).to(tl.int64)
    row_ptr = probs_ptr + row * stride_probs
    top_k = tl.load(top_k_ptr + row).to(tl.int32)
    top_p = tl.load(top_p_ptr + row).to(tl.float64)

    # Top-k: everything above edge_k stays, and the first ties_k of those that equal it.
    edge_k = tl.full([], -1, tl.int32)
    ties_k = tl.full([], 0, tl.int32)
    if (top_k > 0) & (top_k < vocab_size):
        edge_k, count = _search(row_ptr, vocab_size, top_k.to(tl.float64), True, BLOCK, PIVOTS)
        ties_k = top_k - count.to(tl.int32)
    over_k = tl.max(_above(row_ptr, vocab_size, tl.full([PIVOTS], 0, tl.int32) + edge_k, False, BLOCK, PIVOTS), axis=0)
    value_k = tl.maximum(edge_k, 0).to(tl.float32, bitcast=True).to(tl.float64)
    share = top_p * (over_k + ties_k * value_k)

    # Top-p on what top-k left; the tighter of the two edges holds.
    edge_p, over_p = _search(row_ptr, vocab_size, share, False, BLOCK, PIVOTS)
    edge = tl.maximum(edge_k, edge_p)
    over = tl.where(edge_p >= edge_k, over_p, over_k)
    value = edge.to(tl.float32, bitcast=True).to(tl.float64)
    # Tie number r stays while over + r * value < share. Nothing is lost where the value is 0.
    room = tl.minimum(tl.where(value > 0, (share - over) / tl.where(value > 0, value, 1.0), 0.0), vocab_size * 1.0)
    ties = room.to(tl.int32)
    ties += (ties < room).to(tl.int32)
    ties = tl.where(edge == edge_k, tl.minimum(ties, ties_k), ties)

    seen = tl.full([], 0, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < vocab_size
        prob = tl.load(row_ptr + column, mask=inside, other=0.0)
        bits = prob.to(tl.int32, bitcast=True)
        equal = (bits == edge).to(tl.int32)
        rank = seen + tl.cumsum(equal, axis=0) - equal
        kept = (bits > edge) | ((equal > 0) & (rank < ties))
        tl.store(kept_ptr + row * vocab_size + column, tl.where(kept, prob, 0.0), mask=inside)
        seen += tl.sum(equal, axis=0)


def top_p_mask(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """probs: [num_rows, vocab_size] float32, with those beyond the limits set to zero; not rescaled; contiguous.

    top_k: [num_rows] int32 or int64, 0 is off; top_p: [num_rows] float32 or float64, above 0 and at most 1: a token
    stays if those before it have less than top_p of the mass that top-k left. Among equal probabilities the lower token
    id comes first. The best token always stays. Rows may be strided; each sums to 1 and none is below 0. Raises
    ValueError for shapes, strides and types that do not fit.
    """
    launch.check_shape("probs", probs, (None, None))
    num_rows, vocab_size = probs.shape
    launch.check_dtype("probs", probs, torch.float32)
    launch.check_last_dim("probs", probs)
    for name, limits, allowed in (
        ("top_k", top_k, (torch.int32, torch.int64)),
        ("top_p", top_p, (torch.float32, torch.float64)),
    ):
        launch.check_shape(name, limits, (num_rows,))
        launch.check_dtype(name, limits, *allowed)
        launch.check_last_dim(name, limits)
    launch.check_same_device(probs=probs, top_k=top_k, top_p=top_p)
    if vocab_size > MAX_VOCAB:
        raise ValueError(f"the vocabulary has {vocab_size} tokens, the kernel takes at most {MAX_VOCAB}")
    kept = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=probs.device)
    if kept.numel() == 0:
        return kept
    with launch.on_device(probs):
        _top_p_mask_kernel[(num_rows,)](
            probs,
            top_k,
            top_p,
            kept,
            probs.stride(0),
            vocab_size,
            BLOCK=BLOCK,
            PIVOTS=PIVOTS,
            num_warps=NUM_WARPS,
        )
    return kept


def aot_configurations() -> list[AotConfiguration]:
    """The tile is the same for all vocabularies; they differ in what is known to be a multiple of 16."""
    pointers = {"probs_ptr": "*fp32", "top_k_ptr": "*i64", "top_p_ptr": "*fp64", "kept_ptr": "*fp32"}
    return [
        AotConfiguration(
            name=name,
            fn=_top_p_mask_kernel,
            signature=pointers | {"stride_probs": "i32", "vocab_size": "i32"},
            constexprs={"BLOCK": BLOCK, "PIVOTS": PIVOTS},
            num_warps=NUM_WARPS,
            divisible=divisible,
        )
        for name, divisible in (("vocab16", ("stride_probs", "vocab_size")), ("vocab-odd", ()))
    ]
