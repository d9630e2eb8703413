"""Every kernel against float64 on random shapes, results poisoned before; and indices beyond 2^31."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from infradoc_engine.gpu_check import float64
from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.paged_case import Case, Shape, paged_case
from infradoc_kernels import paged_attention_decode as decode
from infradoc_kernels import paged_attention_prefill as prefill
from infradoc_kernels.kv_cache_write import kv_cache_write
from infradoc_kernels.reference.rope import rope_angles
from infradoc_kernels.reference.top_p import top_p_mask as reference_top_p_mask
from infradoc_kernels.rms_norm import rms_norm
from infradoc_kernels.rope import rope
from infradoc_kernels.silu_and_mul import silu_and_mul
from infradoc_kernels.top_p import top_p_mask

# Relative error of the whole result. bfloat16 rounds to 2^-9, float16 to 2^-12; float32 products run as three of TF32.
LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
B16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
SHAPES = (
    (Shape(32, 8, 128, 16), B16),
    (Shape(32, 32, 128, 16), B16),
    (Shape(9, 3, 64, 16), B16),
    (Shape(9, 3, 64, 16), F32),
    (Shape(32, 8, 128, 128), F16),
    (Shape(8, 8, 80, 8), F16),
    (Shape(16, 1, 256, 32), B16),
    (Shape(6, 2, 96, 32), F32),
)
TINY_SHAPES = ((Shape(4, 2, 16, 4), F32), (Shape(3, 1, 24, 8), F32))
CONTEXTS = (1, 17, 250, 1000, 4099)
TINY_CONTEXTS = (1, 9, 30)


def run(look: Look) -> Iterator[Row]:
    """A row a check: {"kernel", "shape", "dtype", "error", "limit", "ok"}."""
    yield {"seed": torch.seed()}  # fresh inputs at every run
    for check in (_elementwise, _captured, _far, _attention):  # the longest last: time may cut it
        yield from check(look)


@contextmanager
def _poisoned() -> Iterator[None]:
    """New memory is NaN: torch does that in its deterministic mode."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _row(kernel: str, shape: Row, dtype: torch.dtype, out: torch.Tensor, expected: torch.Tensor) -> Row:
    error, limit = float64.relative_error(out, expected), LIMITS[dtype]
    return {
        "kernel": kernel,
        **shape,
        "dtype": str(dtype).removeprefix("torch."),
        "error": error,
        "limit": limit,
        "ok": error <= limit,  # NaN is not
    }


def _elementwise(look: Look) -> Iterator[Row]:
    device = look.device
    sizes = ((3, 48),) if look.dry else ((1, 576), (7, 4096), (300, 8192))
    for dtype in (F32,) if look.dry else (B16, F16, F32):
        for rows, hidden in sizes:
            x, residual, weight = (torch.randn(n, hidden, device=device).to(dtype) for n in (rows, rows, 1))
            with _poisoned():
                y, summed = rms_norm(x, weight[0], 1e-5, residual)
                gated = silu_and_mul(torch.cat([x, residual], 1))
            expected_y, expected_sum = float64.rms_norm(x, weight[0], 1e-5, residual)
            shape = {"rows": rows, "hidden": hidden}
            yield _row("rms_norm", shape, dtype, y, expected_y)
            yield _row("rms_norm sum", shape, dtype, summed, expected_sum)
            yield _row("silu_and_mul", shape, dtype, gated, float64.silu_and_mul(torch.cat([x, residual], 1)))
        yield from _rope_and_write(look, dtype)
    yield _top_p(look)


def _rope_and_write(look: Look, dtype: torch.dtype) -> Iterator[Row]:
    device = look.device
    for shape in (Shape(4, 2, 16, 4),) if look.dry else (Shape(9, 3, 64, 16), Shape(32, 8, 128, 32)):
        tokens = 11
        fused = torch.randn(tokens, shape.heads + 2 * shape.kv_heads, shape.head_dim, device=device).to(dtype)
        cos, sin = (part.to(device)[5 : 5 + tokens] for part in rope_angles(shape.head_dim, 10000.0, 64))
        turning = shape.heads + shape.kv_heads
        with _poisoned():
            turned = rope(fused[:, :turning], cos, sin)
        yield _row("rope", shape.row(), dtype, turned, float64.rope(fused[:, :turning], cos, sin))
        caches = [
            torch.full((6, shape.kv_heads, shape.block_size, shape.head_dim), 7.0, dtype=dtype, device=device)
            for _ in range(2)
        ]
        expected = [cache.clone() for cache in caches]
        slots = torch.randperm(6 * shape.block_size, device=device)[:tokens]
        slots[3] = -1  # padding of a captured step: written nowhere
        k, v = turned[:, shape.heads :], fused[:, turning:]
        kv_cache_write(k, v, caches[0], caches[1], slots)
        for token, slot in enumerate(slots.tolist()):
            for cache, source in zip(expected, (k, v), strict=True):
                if slot >= 0:
                    cache[slot // shape.block_size, :, slot % shape.block_size] = source[token]
        same = all(torch.equal(one, other) for one, other in zip(caches, expected, strict=True))
        yield {"kernel": "kv_cache_write", **shape.row(), "dtype": str(dtype).removeprefix("torch."), "ok": same}


def _top_p(look: Look) -> Row:
    rows, vocab = (3, 300) if look.dry else (64, 49152)
    probs = (torch.randn(rows, vocab, device=look.device) * 3).softmax(-1)
    top_k = torch.randint(0, vocab // 2, (rows,), device=look.device)
    top_p = torch.rand(rows, dtype=torch.float64, device=look.device) * 0.9 + 0.05
    kept, expected = top_p_mask(probs, top_k, top_p), reference_top_p_mask(probs, top_k, top_p)
    # Sums in another order may move an edge by a token or two, never the mass that is kept by more than rounding.
    moved = float((kept.sum(-1) - expected.sum(-1)).abs().max())
    return {"kernel": "top_p_mask", "rows": rows, "vocab": vocab, "error": moved, "limit": 1e-3, "ok": moved <= 1e-3}


def _attention(look: Look) -> Iterator[Row]:
    shapes, contexts = (TINY_SHAPES, TINY_CONTEXTS) if look.dry else (SHAPES, CONTEXTS)
    for shape, dtype in shapes[:2] if look.quick else shapes:
        for window in (0, 11 if look.dry else 300):
            lens = [1 if i % 2 else min(n, 70) for i, n in enumerate(contexts)]
            mixed = paged_case(shape, lens, contexts, dtype, look.device, window=window)
            yield _attend("paged_attention_prefill", prefill.paged_attention_prefill, mixed, shape, dtype, False)
            plain = paged_case(shape, [1] * len(contexts), contexts, dtype, look.device, window=window)
            yield _attend("paged_attention_decode", decode.paged_attention_decode, plain, shape, dtype, True)


def _attend(
    name: str,
    kernel: Callable[..., None],
    case: Case,
    shape: Shape,
    dtype: torch.dtype,
    decoding: bool,
    far: bool = False,
) -> Row:
    out = torch.full_like(case.q, torch.nan, memory_format=torch.contiguous_format)
    kernel(case.q, case.k_cache, case.v_cache, case.batch, case.scale, out)
    lens = case.batch.query_starts.diff()
    ours = ((lens == 1) == decoding).repeat_interleave(lens.long())
    row = _row(name, shape.row(), dtype, out[ours], case.expected[ours])
    row |= {"window": case.batch.window, "beyond_2_31": far}
    row["ok"] = row["ok"] and bool(out[~ours].isnan().all())  # rows of other requests stay as they were
    return row


def _captured(look: Look) -> Iterator[Row]:
    """Decode captured in a graph for the longest context, replayed over shorter ones."""
    shape, dtype = Shape(32, 8, 128, 16), B16
    if look.device.type != "cuda":
        return
    case = paged_case(shape, [1] * 4, [3000, 40, 1, 700], dtype, look.device, padding=4)
    batch = case.batch
    batch.captured, batch.max_context_len, batch.max_decode_len, batch.decode_tokens = True, 8192, 0, 0
    out = torch.full_like(case.q, torch.nan, memory_format=torch.contiguous_format)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        decode.paged_attention_decode(case.q, case.k_cache, case.v_cache, batch, case.scale, out)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        decode.paged_attention_decode(case.q, case.k_cache, case.v_cache, batch, case.scale, out)
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    yield _row("paged_attention_decode captured", shape.row(), dtype, out, case.expected)


def _far(look: Look) -> Iterator[Row]:
    """The pool's last blocks of more than 2^31 values."""
    shape, dtype = Shape(32, 8, 128, 16), B16
    block_values = shape.token_values // 2 * shape.block_size
    num_blocks = ((1 << 31) + (1 << 28)) // block_values
    if look.device.type != "cuda" or look.free_bytes() < 3 * num_blocks * block_values * 2:
        return
    case = paged_case(shape, [1, 70, 1], [900, 500, 33], dtype, look.device, num_blocks=num_blocks)
    yield _attend("paged_attention_decode", decode.paged_attention_decode, case, shape, dtype, True, far=True)
    yield _attend("paged_attention_prefill", prefill.paged_attention_prefill, case, shape, dtype, False, far=True)
    k = torch.randn(2, shape.kv_heads, shape.head_dim, device=look.device).to(dtype)
    last = num_blocks * shape.block_size - 1
    kv_cache_write(k, k, case.k_cache, case.v_cache, torch.tensor([last, last - 40], device=look.device))
    written = [case.k_cache[slot // shape.block_size, :, slot % shape.block_size] for slot in (last, last - 40)]
    same = torch.equal(torch.stack(written), k)
    yield {"kernel": "kv_cache_write", **shape.row(), "dtype": "bfloat16", "beyond_2_31": True, "ok": same}
