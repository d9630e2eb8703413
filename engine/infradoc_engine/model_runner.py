"""Turns a ScheduleOutput into sampled tokens: copies of blocks, one pass of the model, the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from infradoc_engine.allocation import give_back, refusal
from infradoc_engine.budget import MemoryBudget
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.cuda_sampler import sampler_for
from infradoc_engine.devices import pick_device, pick_dtype
from infradoc_engine.first_steps import FirstSteps
from infradoc_engine.forward import forward
from infradoc_engine.graph_keeper import GraphKeeper
from infradoc_engine.kv_cache import BlockMoves
from infradoc_engine.models import registry
from infradoc_engine.runner_limits import RunnerLimits, StepPeak, check_limits
from infradoc_engine.runner_pool import RunnerPool
from infradoc_engine.sampler import GREEDY, Sampled, SamplingParams
from infradoc_kernels import ops

if TYPE_CHECKING:  # brings the readers of model files with their packages
    from infradoc_engine.weights import ModelFiles


class ModelRunner:
    """The model, its KV pool and the sampler on one device. One engine thread calls it; it has no locks."""

    def __init__(
        self,
        files: ModelFiles,
        *,
        device: str = "auto",
        dtype: str = "auto",
        block_size: int = 16,
        max_num_batched_tokens: int = 512,
        max_num_seqs: int = 16,
        max_model_len: int = 2048,
        kv_pool_tokens: int | None = None,
        gpu_memory_utilization: float = 0.9,
        device_memory_bytes: int | None = None,
        activation_profile: str = "measure",
        swap_space: int = 0,
        enforce_eager: bool = False,
        cuda_graph_max_bs: int = 64,
    ) -> None:
        """Loads the weights, measures a step at the limits and sizes the KV pool.

        `device_memory_bytes` on CPU is a real limit on this process from now on (see MemoryLimit); without it the
        memory available at start counts and nothing is enforced. `activation_profile` "trust": no step is measured and
        the pool takes the whole share, as engines with a static share do. `swap_space`: bytes of host memory for the
        blocks of swapped requests. Raises ModelFileError, NotEnoughMemory (with the account and the nearest settings
        that fit), ValueError for a setting outside its range.
        """
        self.config = files.config
        self.device = pick_device(device)
        self.dtype = pick_dtype(dtype, self.device)
        limits = RunnerLimits(max_num_batched_tokens, max_num_seqs, max_model_len)
        check_limits(limits, block_size, gpu_memory_utilization, self.config.max_positions)
        c = self.config
        # Compilers stay in the process for life: loaded before the budget opens, they are no part of it.
        ops.warm_up(c.num_heads, c.num_kv_heads, c.head_dim, self.dtype, self.device)
        self.budget = MemoryBudget(
            self.config,
            self.dtype,
            self.device,
            device_memory_bytes=device_memory_bytes,
            utilization=gpu_memory_utilization,
            limits=limits,
        )
        self._graphs = GraphKeeper(self.budget, eager=enforce_eager, max_batch=cuda_graph_max_bs)
        self._sampler = sampler_for(self.device)
        try:
            with torch.inference_mode():
                self._load(files)
                first_steps = FirstSteps(self._model, self.budget, block_size)
                first_steps.warm_up()
                if activation_profile == "measure":
                    self.budget.step = StepPeak(self.config, first_steps.peak_bytes(), limits)
                del first_steps  # its block makes room for the pool
                self._graphs.reserve(self._model, block_size)
                blocks = self.budget.plan_pool(kv_pool_tokens, block_size)
                self._pool = RunnerPool(self.budget, self._graphs, block_size, blocks)
                self.set_host_blocks(self.host_blocks_for(swap_space))
                self._graphs.start(self._pool.cache)
        except BaseException:
            self.budget.lift()
            raise

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV pool; 0 once it is lost."""
        return self._pool.cache.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._pool.cache.block_size

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory for swapped requests."""
        return self._pool.host.num_blocks

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def limits(self) -> RunnerLimits:
        """What a step may be made of."""
        return self.budget.limits

    @property
    def device_bytes(self) -> int:
        """The device memory that the budget was taken from."""
        return self.budget.device_bytes

    def kv_bytes_per_token(self) -> int:
        """Bytes of KV of one token over all layers."""
        return self.budget.bytes_per_token

    def memory_account(self) -> dict[str, int]:
        """Bytes by part: weights, kv, activations (set aside for a step), graphs, other."""
        return self.budget.account()

    def free_bytes(self) -> int:
        """What a larger KV pool could still take of the budget."""
        return self.budget.free_bytes()

    def transfer_bytes(self) -> dict[str, int]:
        """KV moved between device and host since the start, by direction."""
        return {"out": self._pool.host.bytes_out, "in": self._pool.host.bytes_in}

    @property
    def graph_steps(self) -> int:
        """Of all steps, those that ran as a CUDA graph."""
        return self._graphs.steps

    def allocator_stats(self) -> dict[str, int]:
        """torch's caching allocator on this GPU; empty on the CPU, which has none."""
        if self.device.type != "cuda":
            return {}
        stats = torch.cuda.memory_stats(self.device)
        return {
            "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "inactive_split_bytes": stats.get("inactive_split_bytes.all.current", 0),
            "requested_bytes": stats.get("requested_bytes.all.current", 0),
            "ooms": stats.get("num_ooms", 0),
            "alloc_retries": stats.get("num_alloc_retries", 0),
        }

    # -- work --------------------------------------------------------------------------------------------------------

    def execute(self, output: ScheduleOutput, params: Mapping[str, SamplingParams]) -> dict[str, Sampled]:
        """Runs one step: swaps out, copies blocks, swaps in, writes KV, returns a token for each request that samples.

        In that order: a block that is swapped out may be handed out again in the same step. A request without params is
        sampled greedily. Raises NotEnoughMemory when the allocator refuses; KV already written stays valid, so the
        step may be run again.
        """
        try:
            with torch.inference_mode():
                self._pool.host.swap_out(output.swap_out)
                self._pool.cache.copy_blocks(output.block_copies)
                self._pool.host.swap_in(output.swap_in)
                if not output.scheduled:
                    return {}
                logits, best = self._decoded(output.scheduled)
                sampling = [s.request_id for s in output.scheduled if s.samples]
                if not sampling:
                    return {}
                asked = [params.get(i, GREEDY) for i in sampling]
                if best is not None and all(p.temperature == 0.0 and p.logprobs is None for p in asked):
                    picked = [Sampled(token) for token in best.tolist()]
                else:
                    picked = self._sampler.sample(logits, sampling, asked)
        except Exception as error:
            tokens = output.num_prefill_tokens + output.num_decode_tokens
            raise refusal(self.budget, error, "a step", tokens) from error
        return dict(zip(sampling, picked, strict=True))

    def logits(self, scheduled: list[ScheduledRequest]) -> torch.Tensor:
        """Logits [rows that sample, vocab_size] of a step, float32, valid until the next step; for checks."""
        with torch.inference_mode():
            return self._decoded(scheduled)[0]

    def _decoded(self, scheduled: list[ScheduledRequest]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits of the rows that sample and, where a graph ran, their greedy choice."""
        decoded = self._graphs.decode(scheduled)
        if decoded is None:
            return forward(self._model, scheduled, self._pool.cache), None
        return decoded.logits, decoded.best

    def release(self, request_id: str) -> None:
        """Drops what is kept for a request: call it when the request is finished."""
        self._sampler.release(request_id)

    # -- the pool, between two steps ---------------------------------------------------------------------------------

    def grow_kv(self, num_blocks: int) -> None:
        """Enlarges the KV pool; contents stay. NotEnoughMemory leaves the old pool whole."""
        self._pool.grow(num_blocks)

    def shrink_kv(self, num_blocks: int) -> None:
        """Keeps the first `num_blocks` and gives the memory of the others back. NotEnoughMemory changes nothing."""
        self._pool.shrink(num_blocks)

    def move_blocks(self, moves: BlockMoves) -> None:
        """Copies blocks (source, destination), all sources read first. NotEnoughMemory may leave them half copied."""
        self._pool.move(moves)

    def rebuild_kv(self, block_size: int, num_blocks: int) -> None:
        """A new pool instead of the old one; NotEnoughMemory and PoolLost as in RunnerPool.rebuild."""
        self._pool.rebuild(block_size, num_blocks)

    def host_blocks_for(self, num_bytes: int) -> int:
        """Whole blocks in `num_bytes` of host memory."""
        return self._pool.host_blocks_for(num_bytes)

    def set_host_blocks(self, num_blocks: int) -> None:
        """Size of the host tier; contents of the blocks that stay are kept. NotEnoughMemory leaves the old size."""
        self._pool.set_host_blocks(num_blocks)

    # -- settings, between two steps ---------------------------------------------------------------------------------

    def set_step_limits(self, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        """Says how large a step may become. NotEnoughMemory, and no change, when what it would take is not there."""
        limits = replace(self.limits, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs)
        self.budget.check_step(limits)
        before, self.budget.limits = self.limits, limits
        try:
            self._graphs.renew(self._pool.cache)
        except BaseException:  # the account must not count a step that nobody may make
            self.budget.limits = before
            raise

    def settle(self, max_model_len: int, gpu_memory_utilization: float, graph_max_batch: int) -> None:
        """Takes over what a drain changed beside the pool; the pool was planned for it."""
        self.budget.limits = replace(self.limits, max_model_len=max_model_len)
        self.budget.utilization = gpu_memory_utilization
        self._graphs.max_batch = graph_max_batch
        self._graphs.renew(self._pool.cache)

    def set_eager(self, eager: bool) -> None:
        """Whether decodes run without CUDA graphs; the CPU has none."""
        self._graphs.eager = eager
        self._graphs.renew(self._pool.cache)

    def _load(self, files: ModelFiles) -> None:
        try:
            self._model = registry.build(
                self.config, files.tensors(), self.dtype, self.device, self.config.max_positions
            )
        except Exception as error:
            raise refusal(self.budget, error, "the weights", None) from error
        self.budget.weight_bytes = self._model.weight_bytes
        give_back(self.device)
