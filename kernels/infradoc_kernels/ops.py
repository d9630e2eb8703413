"""The public operations, chosen by device. Tensors in, tensors out.

A CUDA tensor goes to the Triton kernel, a float32 tensor on the CPU to the compiled version where numba is installed,
and everything else to the plain PyTorch reference, which is the twin of both in the tests. Modules of Triton and numba
are imported when the first tensor needs them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from infradoc_kernels.paged_batch import PagedBatch, plan_paged_batch
from infradoc_kernels.reference import paged_attention as reference_attention
from infradoc_kernels.reference.argmax import argmax as reference_argmax
from infradoc_kernels.reference.kv_cache_write import cache_rows
from infradoc_kernels.reference.paged_attention import AttentionPlan
from infradoc_kernels.reference.rope import rope_angles

if TYPE_CHECKING:
    from infradoc_kernels.cpu.paged_attention import CompiledPlan

    Plan = AttentionPlan | PagedBatch | CompiledPlan

__all__ = [
    "AttentionPlan",
    "PagedBatch",
    "argmax",
    "cache_rows",
    "kv_cache_write",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope",
    "rope_angles",
    "rope_kv_write",
    "silu_and_mul",
    "top_p_mask",
    "warm_up",
]


@functools.cache  # looked up five times a layer
def _module(package: str, name: str) -> Any:
    return importlib.import_module(f"infradoc_kernels.{package}{name}")


@functools.cache
def _has_numba() -> bool:
    """Whether numba can be used: one that does not go with the installed NumPy is there, but refuses its import."""
    try:
        importlib.import_module("numba")
    except (ImportError, OSError):
        return False
    return True


@functools.cache
def _pick(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    """The module `name` for tensors of this device and type."""
    if device.type == "cuda":
        return _module("", name)
    return _module("cpu." if is_compiled(device, dtype) else "reference.", name)


def is_compiled(device: torch.device, dtype: torch.dtype) -> bool:
    """True where the compiled CPU kernels serve: float32 on the CPU, with numba installed."""
    return device.type == "cpu" and dtype == torch.float32 and _has_numba()


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """y = s / sqrt(mean(s^2) + eps) * weight with s = x + residual; returns (y, s).

    x, residual: [num_tokens, hidden]; weight: [hidden]; statistics in float32; y and s in x's dtype.
    """
    out: tuple[torch.Tensor, torch.Tensor] = _pick("rms_norm", x.device, x.dtype).rms_norm(x, weight, eps, residual)
    return out


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(x[:, :inner]) * x[:, inner:] for x: [num_tokens, 2 * inner]; returns [num_tokens, inner]."""
    out: torch.Tensor = _pick("silu_and_mul", x.device, x.dtype).silu_and_mul(x)
    return out


def argmax(x: torch.Tensor) -> torch.Tensor:
    """Index of the largest number of each row of x: [num_rows, vocab_size]; int64 [num_rows]."""
    if is_compiled(x.device, x.dtype):
        out: torch.Tensor = _module("cpu.", "argmax").argmax(x)
        return out
    return reference_argmax(x)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns x: [num_tokens, num_heads, head_dim] by cos, sin: [num_tokens, head_dim] (rows of `rope_angles`).

    Computed in float32, returned in x's dtype; x is not changed.
    """
    module = _module("" if x.is_cuda else "reference.", "rope")
    out: torch.Tensor = module.rope(x, cos, sin)
    return out


def top_p_mask(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """probs: [num_rows, vocab_size] float32, with those beyond top-k (0 is off) and then top-p set to zero.

    top_k: [num_rows] int64; top_p: [num_rows] float64, above 0 and at most 1. The best token always stays.
    """
    module = _module("" if probs.is_cuda else "reference.", "top_p")
    out: torch.Tensor = module.top_p_mask(probs, top_k, top_p)
    return out


def kv_cache_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Writes k, v: [num_tokens, num_kv_heads, head_dim] at slots: [num_tokens], in place.

    The caches are [num_blocks, num_kv_heads, block_size, head_dim]. `rows` is `cache_rows(slots, ...)` when the caller
    has it already: only the reference needs it.
    """
    _module("" if k.is_cuda else "reference.", "kv_cache_write").kv_cache_write(k, v, k_cache, v_cache, slots, rows)


def rope_kv_write(
    heads: torch.Tensor,
    num_heads: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """Turns queries and keys of a fused projection, writes keys and values, returns the queries.

    heads: [num_tokens, num_heads + 2 * num_kv_heads, head_dim]: queries, keys, values side by side; the call may use it
    up, the queries returned ([num_tokens, num_heads, head_dim]) may be a view of it. The rest as in `rope` and
    `kv_cache_write`.
    """
    if is_compiled(heads.device, heads.dtype):
        q: torch.Tensor = _module("cpu.", "rope_kv_write").rope_kv_write(
            heads, num_heads, cos, sin, k_cache, v_cache, slots
        )
        return q
    turning = num_heads + k_cache.shape[1]  # queries and keys stand side by side: one turn for both
    turned = rope(heads[:, :turning], cos, sin)
    kv_cache_write(turned[:, num_heads:], heads[:, turning:], k_cache, v_cache, slots, rows)
    return turned[:, :num_heads]


def plan_attention(
    block_tables: Sequence[Sequence[int]],
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    window: int = 0,
) -> Plan:
    """Plans one step: the part of its attention that is the same in all layers. Requests as their rows stand in q.

    `block_tables[i]` has at least ceil(context_lens[i] / block_size) block ids; `context_lens[i]` counts all tokens
    whose keys are in the cache, this step's query_lens[i] included. `window` w: a query at position p sees keys j with
    p - w < j <= p; 0: all up to p. Raises ValueError when the lengths do not fit together.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return plan_paged_batch(
            block_tables, query_lens, context_lens, block_size=block_size, device=device, window=window
        )
    if is_compiled(device, dtype):
        compiled: CompiledPlan = _module("cpu.", "paged_attention").plan_compiled(
            block_tables, query_lens, context_lens, block_size=block_size, window=window
        )
        return compiled
    return reference_attention.plan_attention(
        block_tables,
        query_lens,
        context_lens,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=dtype,
        device=device,
        window=window,
    )


def paged_attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: Plan, softmax_scale: float
) -> torch.Tensor:
    """Causal attention of q over the planned blocks; returns a new tensor of q's shape.

    q: [num_tokens, num_heads, head_dim]; caches: [num_blocks, num_kv_heads, block_size, head_dim]. Query head h reads
    KV head h // (num_heads // num_kv_heads). Slots beyond a request's context never reach the result, whatever they
    hold.
    """
    if isinstance(plan, AttentionPlan):
        return reference_attention.paged_attention(q, k_cache, v_cache, plan, softmax_scale)
    if isinstance(plan, PagedBatch):
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for name in ("paged_attention_decode", "paged_attention_prefill"):
            getattr(_module("", name), name)(q, k_cache, v_cache, plan, softmax_scale, out)
        return out
    mixed: torch.Tensor = _module("cpu.", "paged_attention").paged_attention(q, k_cache, v_cache, plan, softmax_scale)
    return mixed


def warm_up(num_heads: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
    """Compiles what a model of this shape will call, so that no request waits for it. Nothing where nothing compiles.

    Triton kernels compile when a step first runs: a step at the limits warms those.
    """
    if is_compiled(device, torch.float32):
        _module("cpu.", "argmax")  # logits are float32, whatever the model computes in
    if is_compiled(device, dtype):
        for name in ("rms_norm", "silu_and_mul", "rope_kv_write"):
            _module("cpu.", name)
        _module("cpu.", "paged_attention").compile_for(head_dim, num_heads // num_kv_heads)
