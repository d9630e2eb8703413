"""The public operations, chosen by device. Tensors in, tensors out.

Today each is its plain PyTorch reference on every device; a Triton or compiled version takes its place here, under
the same signature, and the reference stays as its twin in the tests.
"""

from __future__ import annotations

from infradoc_kernels.reference.kv_cache_write import cache_rows, kv_cache_write
from infradoc_kernels.reference.paged_attention import AttentionPlan, paged_attention, plan_attention
from infradoc_kernels.reference.rms_norm import rms_norm
from infradoc_kernels.reference.rope import rope, rope_angles
from infradoc_kernels.reference.silu_and_mul import silu_and_mul

__all__ = [
    "AttentionPlan",
    "cache_rows",
    "kv_cache_write",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope",
    "rope_angles",
    "silu_and_mul",
]
