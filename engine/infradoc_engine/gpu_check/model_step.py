"""Whole model steps with random weights, through the engine's own runner: eager, and as CUDA graphs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.gpu_check import float64
from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.random_model import LLAMA_7B, SMOLLM2, TINY, RandomModel
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.weights.config import ModelConfig, expected_shapes

BLOCK_SIZE = 16
STEP_TOKENS = 2048
LOGITS_LIMIT = 3e-2  # relative, bfloat16: other splits and row counts add in another order


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run of one model."""

    config: ModelConfig
    batches: tuple[int, ...]
    context: int  # tokens that each request has before its first decode
    steps: int

    @property
    def request_tokens(self) -> int:
        """Room of a request, whole blocks."""
        return -(-(self.context + self.steps + 1) // BLOCK_SIZE) * BLOCK_SIZE


def run(look: Look) -> Iterator[Row]:
    """Rows by model: start, prefill, then decode by batch and mode."""
    if look.dry:
        plans = [Plan(TINY, (1, 2), 20, 3)]
    else:
        steps = 12 if look.quick else 24
        batches = (1, 32) if look.quick else (1, 8, 32, 128)
        plans = [Plan(LLAMA_7B, batches, 256, steps), Plan(SMOLLM2, batches, 256, steps)]
    for plan in plans:
        yield from _model(look, plan)
        if look.device.type == "cuda":
            torch.cuda.empty_cache()


def _model(look: Look, plan: Plan) -> Iterator[Row]:
    name = {"model": plan.config.name}
    start = time.perf_counter()
    try:
        runner = _runner(look, plan)
    except NotEnoughMemory as error:
        yield name | {"what": "refused start", "message": error.message, "account": error.account, "fits": error.fits}
        return
    seconds = time.perf_counter() - start
    yield name | {"what": "start", "seconds": seconds, "account": runner.memory_account(), "blocks": runner.num_blocks}
    tokens, row = _prefill(look, runner, plan)
    yield name | row
    for batch in plan.batches:
        yield from (name | row for row in _decodes(look, runner, plan, batch, tokens))


def _runner(look: Look, plan: Plan) -> ModelRunner:
    most = max(plan.batches)
    return ModelRunner(
        RandomModel(plan.config, look.dtype, look.device),
        device=look.device.type,
        dtype="float32" if look.dry else "bfloat16",
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=64 if look.dry else STEP_TOKENS,
        max_num_seqs=most,
        max_model_len=64 if look.dry else 1024,
        kv_pool_tokens=max(most * plan.request_tokens, 64 if look.dry else 1024),
        cuda_graph_max_bs=most,
    )


def _table(plan: Plan, request: int) -> list[int]:
    each = plan.request_tokens // BLOCK_SIZE
    return list(range(request * each, (request + 1) * each))


def _prefill(look: Look, runner: ModelRunner, plan: Plan) -> tuple[list[int], Row]:
    """Fills the context of all requests, so that decodes read real keys; returns each one's next token."""
    generator = torch.Generator().manual_seed(3)
    size, most = (plan.config.vocab_size, max(plan.batches))
    prompts = torch.randint(0, size, (most, plan.context), generator=generator).tolist()
    together = max(1, (64 if look.dry else STEP_TOKENS) // plan.context)
    tokens, times = [0] * most, []
    for first in range(0, most, together):
        chosen = range(first, min(first + together, most))
        parts = [ScheduledRequest(str(i), prompts[i], 0, _table(plan, i), True, True) for i in chosen]
        start = time.perf_counter()
        picked = runner.execute(ScheduleOutput(0, parts), {})
        times.append((time.perf_counter() - start) / (len(parts) * plan.context))
        for i in chosen:
            tokens[i] = picked[str(i)].token_id
    per_token = statistics.median(times)
    operations = 2 * _matmul_values(plan.config)
    row = {"what": "prefill", "step_tokens": together * plan.context, "tokens_per_second": 1 / per_token}
    return tokens, row | {"teraflops": operations / per_token / 1e12}


def _decodes(look: Look, runner: ModelRunner, plan: Plan, batch: int, tokens: list[int]) -> Iterator[Row]:
    found: dict[str, list[list[int]]] = {}
    for mode in ("eager", "graph") if look.device.type == "cuda" else ("eager",):
        runner.set_eager(mode == "eager")
        before = runner.graph_steps
        found[mode], times = _steps(runner, plan, tokens[:batch])
        p50 = statistics.median(times[3:] or times)
        read = _matmul_values(plan.config) * look.dtype.itemsize
        yield {
            "what": "decode",
            "mode": mode,
            "batch": batch,
            "context": plan.context,
            "step_ms": p50 * 1e3,
            "tokens_per_second": batch / p50,
            "weight_gigabytes_per_second": read / p50 / 1e9,
            "weights_share_of_copy": look.share_of_copy(read / p50),
            "graph_steps": runner.graph_steps - before,
            "ok": (runner.graph_steps - before == plan.steps) == (mode == "graph"),
        }
    if "graph" in found:
        pairs = [pair for one, other in zip(*found.values(), strict=True) for pair in zip(one, other, strict=True)]
        error = _logits_error(runner, plan, tokens[:batch])
        equal = sum(one == other for one, other in pairs) / len(pairs)
        row = {"what": "graph against eager", "batch": batch, "tokens_equal": equal, "error": error}
        yield row | {"limit": LOGITS_LIMIT, "ok": error <= LOGITS_LIMIT}
        yield {"what": "no wait for the device", "batch": batch, **_waits(runner, _requests(plan, tokens[:batch], 0))}


def _requests(plan: Plan, tokens: list[int], step: int) -> list[ScheduledRequest]:
    place = plan.context + step
    return [ScheduledRequest(str(i), [t], place, _table(plan, i), True, False) for i, t in enumerate(tokens)]


def _steps(runner: ModelRunner, plan: Plan, tokens: list[int]) -> tuple[list[list[int]], list[float]]:
    """Greedy tokens of each step and its seconds, host work and the copy of the tokens included."""
    out, times = [], []
    for step in range(plan.steps):
        parts = _requests(plan, tokens, step)
        start = time.perf_counter()
        picked = runner.execute(ScheduleOutput(step, parts), {})
        times.append(time.perf_counter() - start)
        tokens = [picked[str(i)].token_id for i in range(len(tokens))]
        out.append(tokens)
    return out, times


def _waits(runner: ModelRunner, requests: list[ScheduledRequest]) -> Row:
    """Whether a step up to its logits makes the host wait: torch raises when something does."""
    said = {}
    for mode in ("eager", "graph"):
        runner.set_eager(mode == "eager")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            runner.logits(requests)
        except RuntimeError as error:
            said[mode] = (str(error).splitlines() or [""])[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return {"waits": said, "ok": not said}


def _logits_error(runner: ModelRunner, plan: Plan, tokens: list[int]) -> float:
    """Relative difference of the logits of one step in the two modes."""
    logits = []
    for eager in (True, False):
        runner.set_eager(eager)
        logits.append(runner.logits(_requests(plan, tokens, 0)).clone())
    return float64.relative_error(logits[1], logits[0])


def _matmul_values(config: ModelConfig) -> int:
    """Weights that every step reads: all but the norms and the embedding, unless that is the head too."""
    shapes = expected_shapes(config)
    head = "embed_tokens" if config.tie_word_embeddings else "lm_head"
    return sum(
        prod(shape) for name, shape in shapes.items() if len(shape) > 1 and (name == head or name != "embed_tokens")
    )
