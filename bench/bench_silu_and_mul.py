"""The feed-forward gate. usage: python -m bench.bench_silu_and_mul [--out bench/results/silu_and_mul.json]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from bench.common import Case, bench


def cases() -> Iterator[Case]:
    from infradoc_kernels import silu_and_mul
    from infradoc_kernels.reference import silu_and_mul as reference

    for inner in (1536, 11008, 14336):
        for tokens in (1, 32, 2048, 16384):
            x = torch.randn(tokens, 2 * inner, device="cuda").bfloat16()
            for name, module in (("triton", silu_and_mul), ("reference", reference)):
                shape = {"tokens": tokens, "inner": inner}
                run = lambda f=module.silu_and_mul, a=x: f(a)  # noqa: E731
                yield Case(shape, "bfloat16", name, run, x.nbytes + x.nbytes // 2)


if __name__ == "__main__":
    sys.exit(bench("silu_and_mul", cases))
