"""Sampling on a GPU: one transfer of parameters there, one of results back, no wait in between."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from infradoc_engine.sampler import Sampled, Sampler, SamplingParams, invert
from infradoc_kernels import ops


def sampler_for(device: torch.device) -> Sampler:
    """The sampler of a device; it remembers nothing yet."""
    return CudaSampler() if device.type == "cuda" else Sampler()


class CudaSampler(Sampler):
    """As Sampler, whose draws a request's seed decides too; the same draw may pick another token of equal right.

    Tokens that may be picked stand in the order of their ids here, in that of their probabilities there.
    """

    def sample(
        self, logits: torch.Tensor, request_ids: Sequence[str], params: Sequence[SamplingParams]
    ) -> list[Sampled]:
        """One token for each row of logits: [num_rows, vocab_size] float32; not changed."""
        tokens = logits.argmax(dim=-1)
        if any(p.temperature > 0.0 for p in params):
            tokens = self._drawn(logits, tokens, request_ids, params)
        if all(p.logprobs is None for p in params):
            return [Sampled(token) for token in tokens.tolist()]
        most = min(max(p.logprobs or 0 for p in params), logits.shape[-1])
        logs = logits.log_softmax(-1)
        values, ids = logs.topk(most, dim=-1)
        own = logs.gather(1, tokens[:, None])
        # float64 holds ids and float32 values alike: everything comes back in one piece.
        packed = torch.cat([tokens[:, None].double(), own.double(), values.double(), ids.double()], dim=1).tolist()
        return [_unpacked(row, most, p) for row, p in zip(packed, params, strict=True)]

    def _drawn(
        self, logits: torch.Tensor, best: torch.Tensor, request_ids: Sequence[str], params: Sequence[SamplingParams]
    ) -> torch.Tensor:
        drawing = [p.temperature > 0.0 for p in params]
        uniform = [
            self._uniform(name, p.seed) if draws else 0.0
            for name, p, draws in zip(request_ids, params, drawing, strict=True)
        ]
        sent = torch.tensor(
            [
                uniform,
                [max(p.temperature, 1e-6) for p in params],
                [float(min(p.top_k, logits.shape[-1])) for p in params],
                [p.top_p for p in params],
                [float(draws) for draws in drawing],
            ],
            dtype=torch.float64,
            pin_memory=logits.is_cuda,
        ).to(logits.device, non_blocking=True)
        draws, temperature, top_k, top_p, chosen = sent
        # From the best logit down, so that a tiny temperature underflows to "the best" instead of to NaN.
        probs = ((logits - logits.amax(-1, keepdim=True)) / temperature.float()[:, None]).softmax(-1)
        if any(p.top_k > 0 or p.top_p < 1.0 for p in params):
            probs = ops.top_p_mask(probs, top_k.long(), top_p)
        return torch.where(chosen > 0, invert(probs, draws)[:, 0], best)


def _unpacked(row: list[float], most: int, params: SamplingParams) -> Sampled:
    token = int(row[0])
    if params.logprobs is None:
        return Sampled(token)
    values, ids = row[2 : 2 + params.logprobs], row[2 + most : 2 + most + params.logprobs]
    return Sampled(token, row[1], [(int(i), value) for i, value in zip(ids[:most], values[:most], strict=True)])
