"""Rotary positions. usage: python -m bench.bench_rope [--out bench/results/rope.json]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from bench.common import Case, bench


def cases() -> Iterator[Case]:
    from infradoc_kernels import rope
    from infradoc_kernels.reference import rope as reference

    for heads, head_dim in ((9, 64), (32, 128), (8, 128)):
        for tokens in (1, 32, 2048, 16384):
            # Queries stand in a fused projection with keys and values beside them.
            x = torch.randn(tokens, heads + 16, head_dim, device="cuda").bfloat16()[:, :heads]
            cos, sin = (part.cuda() for part in reference.rope_angles(head_dim, 10000.0, tokens))
            for name, module in (("triton", rope), ("reference", reference)):
                shape = {"tokens": tokens, "heads": heads, "head_dim": head_dim}
                run = lambda f=module.rope, a=(x, cos, sin): f(*a)  # noqa: E731
                yield Case(shape, "bfloat16", name, run, 4 * x.numel() + cos.nbytes + sin.nbytes)


if __name__ == "__main__":
    sys.exit(bench("rope", cases))
