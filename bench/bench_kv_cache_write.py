"""Writes to the paged cache. usage: python -m bench.bench_kv_cache_write [--out bench/results/kv_cache_write.json]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from bench.common import Case, bench


def cases() -> Iterator[Case]:
    from infradoc_kernels import kv_cache_write
    from infradoc_kernels.reference import kv_cache_write as reference

    for heads, head_dim, block_size in ((3, 64, 16), (8, 128, 16), (32, 128, 16), (32, 128, 128)):
        num_blocks = 65536 // block_size
        caches = [torch.empty(num_blocks, heads, block_size, head_dim, device="cuda").bfloat16() for _ in range(2)]
        for tokens in (1, 32, 2048, 16384):
            k, v = (torch.randn(tokens, heads, head_dim, device="cuda").bfloat16() for _ in range(2))
            slots = torch.randperm(num_blocks * block_size, device="cuda")[:tokens]
            for name, module in (("triton", kv_cache_write), ("reference", reference)):
                shape = {"tokens": tokens, "kv_heads": heads, "head_dim": head_dim, "block_size": block_size}
                run = lambda f=module.kv_cache_write, a=(k, v, *caches, slots): f(*a)  # noqa: E731
                yield Case(shape, "bfloat16", name, run, 4 * k.nbytes)


if __name__ == "__main__":
    sys.exit(bench("kv_cache_write", cases))
