"""Next tokens from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from infradoc_kernels import ops

# Top-p looks among this many best tokens before it sorts the whole vocabulary: 0.3, 0.7 and 3.3 ms a row for 512, 4,096
# and all of 49,152 tokens. What matters is nearly always among the first few hundred.
LOOKS = (512, 4096)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request picks tokens. temperature 0 is greedy; top_k 0 and top_p 1 are off; logprobs: top n or None."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature is {self.temperature}, it must be from 0 to 100")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}, it must be above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, it must be 0 (off) or more")
        if self.seed is not None and not -(1 << 63) <= self.seed < 1 << 64:
            raise ValueError(f"seed is {self.seed}, it must fit 64 bits")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"logprobs is {self.logprobs}, it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Sampled:
    """One picked token. Log probabilities are natural logs of the model's own distribution, before temperature."""

    token_id: int
    logprob: float | None = None
    top_logprobs: list[tuple[int, float]] | None = None  # best first


GREEDY = SamplingParams(temperature=0.0)


class Sampler:
    """Keeps a generator for each request that gave a seed, so that its draws do not depend on its neighbours."""

    def __init__(self) -> None:
        self._generators: dict[str, torch.Generator] = {}
        self._shared = torch.Generator()
        self._shared.seed()

    def release(self, request_id: str) -> None:
        """Forgets a finished request."""
        self._generators.pop(request_id, None)

    def sample(
        self, logits: torch.Tensor, request_ids: Sequence[str], params: Sequence[SamplingParams]
    ) -> list[Sampled]:
        """One token for each row of logits: [num_rows, vocab_size] float32; not changed."""
        tokens: list[int] = ops.argmax(logits).tolist()
        drawing = [row for row, p in enumerate(params) if p.temperature > 0.0]
        if drawing:
            picked = self._draw(logits, drawing, request_ids, params)
            for row, token in zip(drawing, picked, strict=True):
                tokens[row] = token
        asked = [row for row, p in enumerate(params) if p.logprobs is not None]
        logged = _logprobs(logits, asked, tokens, params) if asked else {}
        return [logged.get(row) or Sampled(token) for row, token in enumerate(tokens)]

    def _draw(
        self, logits: torch.Tensor, rows: list[int], request_ids: Sequence[str], params: Sequence[SamplingParams]
    ) -> list[int]:
        uniform = torch.tensor([self._uniform(request_ids[row], params[row].seed) for row in rows], dtype=torch.float64)
        cuts = [params[row].top_k > 0 or params[row].top_p < 1.0 for row in rows]
        limited = [i for i, cut in enumerate(cuts) if cut]
        free = [i for i, cut in enumerate(cuts) if not cut]
        tokens = [0] * len(rows)
        for part, pick in ((free, _pick_free), (limited, _pick_limited)):
            if part:
                chosen = [rows[i] for i in part]
                temperatures = torch.tensor([max(params[r].temperature, 1e-6) for r in chosen], device=logits.device)
                rows_of = logits[chosen]
                # From the best logit down, so that a tiny temperature underflows to "the best" instead of to NaN.
                probs = ((rows_of - rows_of.amax(-1, keepdim=True)) / temperatures[:, None]).softmax(-1)
                picked = pick(probs, uniform[part].to(logits.device), [params[row] for row in chosen])
                for i, token in zip(part, picked, strict=True):
                    tokens[i] = token
        return tokens

    def _uniform(self, request_id: str, seed: int | None) -> float:
        """One draw in [0, 1) a token: whatever the batch, a seeded request consumes its generator alike."""
        if seed is None:
            return float(torch.rand((), generator=self._shared, dtype=torch.float64))
        generator = self._generators.get(request_id)
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(seed)
            self._generators[request_id] = generator
        return float(torch.rand((), generator=generator, dtype=torch.float64))


def invert(probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Index whose share of the running sum holds the draw; probs: [num_rows, n] need not sum to 1."""
    running = probs.double().cumsum(-1)
    total = running[:, -1]
    # Rounding can lift the draw to the total itself, which would pick a last index without probability.
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(running, target[:, None], right=True)


def _pick_free(probs: torch.Tensor, uniform: torch.Tensor, _: list[SamplingParams]) -> list[int]:
    picked: list[int] = invert(probs, uniform)[:, 0].tolist()
    return picked


def _pick_limited(probs: torch.Tensor, uniform: torch.Tensor, params: list[SamplingParams]) -> list[int]:
    """Top-k, then top-p among what is left, over probabilities sorted from the best down."""
    vocab = probs.shape[-1]
    top_k = torch.tensor([min(p.top_k or vocab, vocab) for p in params], device=probs.device)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=probs.device)
    tokens = torch.zeros(len(params), dtype=torch.int64, device=probs.device)
    rows = torch.arange(len(params), device=probs.device)
    for look in (*LOOKS, vocab):
        best, ids = probs[rows].topk(min(look, vocab), dim=-1)
        kept = _kept(best, top_k[rows], top_p[rows])
        tokens[rows] = ids.gather(1, invert(kept, uniform[rows]))[:, 0]
        # The last token looked at is still in and more may follow it: look further, in these rows only.
        rows = rows[(top_k[rows] > look) & (kept[:, -1] > 0)]
        if look >= vocab or not rows.numel():
            break
    picked: list[int] = tokens.tolist()
    return picked


def _kept(best: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Sorted probabilities with those beyond the limits set to zero; the best one always stays."""
    rank = torch.arange(best.shape[-1], device=best.device)
    kept = best.double().masked_fill(rank >= top_k[:, None], 0.0)
    # Top-p is a share of the mass that top-k left. Without a top-k within sight that is taken as all: then either the
    # mass is reached within sight, or the caller looks further.
    total = torch.where(top_k <= best.shape[-1], kept.sum(-1), 1.0)
    before = kept.cumsum(-1) - kept
    return kept.masked_fill((before >= (top_p * total)[:, None]) & (rank > 0), 0.0)


def _logprobs(
    logits: torch.Tensor, rows: list[int], tokens: list[int], params: Sequence[SamplingParams]
) -> dict[int, Sampled]:
    logs = logits[rows].log_softmax(-1)
    most = min(max(params[row].logprobs or 0 for row in rows), logs.shape[-1])
    values, ids = logs.topk(most, dim=-1)
    own = logs.gather(1, torch.tensor([[tokens[row]] for row in rows], device=logs.device))[:, 0].tolist()
    out: dict[int, Sampled] = {}
    for i, row in enumerate(rows):
        count = params[row].logprobs or 0
        top = list(zip(ids[i, :count].tolist(), values[i, :count].tolist(), strict=True))
        out[row] = Sampled(tokens[row], own[i], top)
    return out
