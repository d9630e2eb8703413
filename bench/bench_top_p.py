"""Top-p over whole vocabularies, beside a sort. usage: python -m bench.bench_top_p [--out bench/results/top_p.json]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from bench.common import Case, bench


def cases() -> Iterator[Case]:
    from infradoc_kernels import top_p
    from infradoc_kernels.reference import top_p as reference

    for vocab in (49152, 128256, 151936):
        for rows in (1, 32, 256):
            probs = (torch.randn(rows, vocab, device="cuda") * 3).softmax(-1)
            limits = torch.zeros(rows, dtype=torch.int64, device="cuda"), torch.full((rows,), 0.9, device="cuda")
            for name, module in (("triton", top_p), ("reference", reference)):
                shape = {"rows": rows, "vocab": vocab}
                run = lambda f=module.top_p_mask, a=(probs, *limits): f(*a)  # noqa: E731
                yield Case(shape, "float32", name, run, 2 * probs.nbytes)


if __name__ == "__main__":
    sys.exit(bench("top_p", cases))
