"""RMSNorm with residual. usage: python -m bench.bench_rms_norm [--out bench/results/rms_norm.json]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from bench.common import Case, bench


def cases() -> Iterator[Case]:
    from infradoc_kernels import rms_norm
    from infradoc_kernels.reference import rms_norm as reference

    for hidden in (576, 4096, 8192, 16384):
        for tokens in (1, 32, 2048, 16384):
            x, residual = (torch.randn(tokens, hidden, device="cuda").bfloat16() for _ in range(2))
            weight = torch.ones(hidden, device="cuda").bfloat16()
            for name, module in (("triton", rms_norm), ("reference", reference)):
                shape = {"tokens": tokens, "hidden": hidden}
                run = lambda f=module.rms_norm, a=(x, weight, 1e-5, residual): f(*a)  # noqa: E731
                yield Case(shape, "bfloat16", name, run, 4 * x.nbytes + weight.nbytes)


if __name__ == "__main__":
    sys.exit(bench("rms_norm", cases))
