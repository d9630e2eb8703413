"""Turns a ScheduleOutput into sampled tokens: batch tensors, one pass of the model, the sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from traceback import clear_frames
from typing import TYPE_CHECKING

import torch

from infradoc_engine.budget import MemoryBudget
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.cuda_sampler import CudaSampler
from infradoc_engine.graph_keeper import GraphKeeper
from infradoc_engine.kv_cache import BlockMoves, KVCache
from infradoc_engine.kv_host import HostTier
from infradoc_engine.memory import MIB, NotEnoughMemory, measure_peak, trim_heap
from infradoc_engine.models import registry
from infradoc_engine.refusals import is_out_of_memory
from infradoc_engine.runner_limits import RunnerLimits, StepPeak, activation_bound, check_limits, largest_step
from infradoc_engine.sampler import GREEDY, Sampled, Sampler, SamplingParams
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
        self.device, self.dtype = _device(device), _dtype(dtype, _device(device))
        self.block_size = block_size
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
        self._sampler = self._new_sampler()
        try:
            with torch.inference_mode():
                self._load(files)
                self._warm_up()
                if activation_profile == "measure":
                    self.budget.step = StepPeak(self.config, self._profile(), limits)
                self._graphs.reserve(self._model, block_size)
                blocks = self.budget.plan_pool(kv_pool_tokens, block_size)
                self._cache = self._allocate_pool(block_size, blocks)
                self._host = HostTier(self._cache)
                self.set_host_blocks(self.host_blocks_for(swap_space))
                self._graphs.start(self._cache)
        except BaseException:
            self.budget.lift()
            raise

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory for swapped requests."""
        return self._host.num_blocks

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
        return {"out": self._host.bytes_out, "in": self._host.bytes_in}

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
                self._host.swap_out(output.swap_out)
                self._cache.copy_blocks(output.block_copies)
                self._host.swap_in(output.swap_in)
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
            raise self._refused(error, "a step", output.num_prefill_tokens + output.num_decode_tokens) from error
        return dict(zip(sampling, picked, strict=True))

    def logits(self, scheduled: list[ScheduledRequest]) -> torch.Tensor:
        """Logits [rows that sample, vocab_size] of a step, float32, valid until the next step; for checks."""
        with torch.inference_mode():
            return self._decoded(scheduled)[0]

    def _decoded(self, scheduled: list[ScheduledRequest]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits of the rows that sample and, where a graph ran, their greedy choice."""
        decoded = self._graphs.decode(scheduled)
        if decoded is None:
            return self._forward(scheduled, self._cache), None
        return decoded.logits, decoded.best

    def release(self, request_id: str) -> None:
        """Drops what is kept for a request: call it when the request is finished."""
        self._sampler.release(request_id)

    # -- the pool, between two steps ---------------------------------------------------------------------------------

    def grow_kv(self, num_blocks: int) -> None:
        """Enlarges the KV pool; contents stay. NotEnoughMemory leaves the old pool whole."""
        self.budget.check_growth(num_blocks, self.block_size)
        self._change_pool(num_blocks, self._cache.grow)

    def shrink_kv(self, num_blocks: int) -> None:
        """Keeps the first `num_blocks` and gives the memory of the others back. NotEnoughMemory changes nothing."""
        self._change_pool(num_blocks, self._cache.shrink)

    def _change_pool(self, num_blocks: int, change: Callable[[int], None]) -> None:
        self._graphs.forget()
        try:
            with torch.inference_mode():
                change(num_blocks)
        except Exception as error:
            raise self._refused(error, "a KV pool", num_blocks * self.block_size) from error
        finally:
            self.budget.kv_bytes = self._cache.num_bytes
            self._give_back()

    def move_blocks(self, moves: BlockMoves) -> None:
        """Copies blocks (source, destination), all sources read first. NotEnoughMemory may leave them half copied."""
        try:
            with torch.inference_mode():
                self._cache.copy_blocks(moves)
        except Exception as error:
            raise self._refused(error, "moving KV blocks", len(moves) * self.block_size) from error

    def rebuild_kv(self, block_size: int, num_blocks: int) -> None:
        """A new pool instead of the old one, whose contents are lost; the host tier is emptied with it.

        NotEnoughMemory brings a pool of the old shape back, without its contents.
        """
        old = self.block_size, self.num_blocks
        host_bytes = self._host.num_bytes
        self._graphs.drop()
        self._cache.layers.clear()  # both pools at once would need room for both
        self._give_back()
        try:
            self._use_pool(block_size, num_blocks)
        except Exception:
            self._use_pool(*old)
            raise
        finally:
            # Without room it stays empty: that is no reason to undo the pool, preempted requests are computed again.
            with suppress(NotEnoughMemory):
                self.set_host_blocks(self.host_blocks_for(host_bytes))

    def _use_pool(self, block_size: int, num_blocks: int) -> None:
        with torch.inference_mode():
            self._cache = self._allocate_pool(block_size, num_blocks)
        self.block_size = block_size
        self._host.attach(self._cache)
        self.budget.allow_host(self._host.num_bytes)
        self._graphs.renew(self._cache)

    def host_blocks_for(self, num_bytes: int) -> int:
        """Whole blocks in `num_bytes` of host memory."""
        return num_bytes // self._host.block_bytes

    def set_host_blocks(self, num_blocks: int) -> None:
        """Size of the host tier; contents of the blocks that stay are kept. NotEnoughMemory leaves the old size."""
        before = self._host.num_blocks
        self.budget.check_host(num_blocks * self._host.block_bytes)
        self.budget.allow_host(max(num_blocks, before) * self._host.block_bytes)
        try:
            self._host.resize(num_blocks)
        except Exception as error:
            raise self._refused(error, "a swap space", num_blocks * self.block_size) from error
        finally:
            self.budget.allow_host(self._host.num_bytes)

    def set_step_limits(self, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        """Says how large a step may become. NotEnoughMemory when what it would take is not there."""
        limits = replace(self.limits, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs)
        self.budget.check_step(limits)
        self.budget.limits = limits
        self._graphs.renew(self._cache)

    def settle(self, max_model_len: int, gpu_memory_utilization: float, graph_max_batch: int) -> None:
        """Takes over what a drain changed beside the pool; the pool was planned for it."""
        self.budget.limits = replace(self.limits, max_model_len=max_model_len)
        self.budget.utilization = gpu_memory_utilization
        self._graphs.max_batch = graph_max_batch
        self._graphs.renew(self._cache)

    def set_eager(self, eager: bool) -> None:
        """Whether decodes run without CUDA graphs; the CPU has none."""
        self._graphs.eager = eager
        self._graphs.renew(self._cache)

    def _forward(
        self, scheduled: list[ScheduledRequest], cache: KVCache, num_layers: int | None = None
    ) -> torch.Tensor:
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        sample_rows: list[int] = []
        size = self.block_size
        for request in scheduled:
            table, stop = request.block_table, request.start + len(request.token_ids)
            tokens += request.token_ids
            positions += range(request.start, stop)
            slots += [table[p // size] * size + p % size for p in range(request.start, stop)]
            if request.samples:
                sample_rows.append(len(tokens) - 1)
        plan = ops.plan_attention(
            [s.block_table for s in scheduled],
            [len(s.token_ids) for s in scheduled],
            [s.start + len(s.token_ids) for s in scheduled],
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            block_size=size,
            dtype=self.dtype,
            device=self.device,
        )
        step = self._model.step(self._ids(positions), self._ids(slots), size, plan)
        return self._model.forward(
            self._ids(tokens), step, cache.layers[:num_layers], self._ids(sample_rows), num_layers
        )

    def _new_sampler(self) -> Sampler:
        return CudaSampler() if self.device.type == "cuda" else Sampler()

    def _ids(self, values: list[int]) -> torch.Tensor:
        if self.device.type == "cuda":  # pinned and not waited for: the host runs ahead of the device
            return torch.tensor(values, dtype=torch.int64, pin_memory=True).to(self.device, non_blocking=True)
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _load(self, files: ModelFiles) -> None:
        try:
            self._model = registry.build(
                self.config, files.tensors(), self.dtype, self.device, self.config.max_positions
            )
        except Exception as error:
            raise self._refused(error, "the weights", None) from error
        self.budget.weight_bytes = self._model.weight_bytes
        self._give_back()

    def _give_back(self) -> None:
        """Returns freed memory to the system and the device, where others may need it and readings count it."""
        trim_heap()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _warm_up(self) -> None:
        """GPU: compiles what short steps launch, so that no request waits; a step at the limits compiles the rest."""
        if self.device.type != "cuda":
            return
        params = [SamplingParams(top_p=0.9, logprobs=1)]
        cache = KVCache(self.config, 1, self.block_size, self.dtype, self.device)
        most = min(self.limits.max_num_batched_tokens, self.limits.max_model_len)
        try:
            for count in {1, min(2, most), min(65, most)}:  # a decode, and prefill tiles of few and of many rows
                table = [0] * -(-count // self.block_size)
                step = [ScheduledRequest("warm-up", [0] * count, 0, table, True, count > 1)]
                logits = self._forward(step, cache, num_layers=1)
                self._new_sampler().sample(logits, ["warm-up"], params)
        except Exception as error:
            raise self._refused(error, "a first step", None) from error
        self._give_back()

    def _profile(self) -> int:
        """Bytes a step takes beside weights and KV, measured on a step at the limits through the first layer.

        One layer is enough: each frees what it took before the next begins. Where nothing can be measured, a bound
        from the shapes is used.
        """
        step = largest_step(self.limits, self.block_size)
        params = [SamplingParams(top_p=0.9, logprobs=1)] * len(step)
        cache = KVCache(self.config, 1, self.block_size, self.dtype, self.device)

        def work() -> None:
            logits = self._forward(step, cache, num_layers=1)
            self._new_sampler().sample(logits, [s.request_id for s in step], params)

        try:
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
                before = torch.cuda.memory_allocated(self.device)
                work()
                highest = int(torch.cuda.max_memory_allocated(self.device))
                self._give_back()
                return highest - before
            peak = measure_peak(work)
            trim_heap()
        except Exception as error:
            raise self._refused(error, "a step at the limits", self.limits.max_num_batched_tokens) from error
        return peak if peak is not None else activation_bound(self.config, self.limits)

    def _allocate_pool(self, block_size: int, num_blocks: int) -> KVCache:
        try:
            cache = KVCache(self.config, num_blocks, block_size, self.dtype, self.device)
        except Exception as error:
            raise self._refused(error, "the KV pool", num_blocks * block_size) from error
        self.budget.kv_bytes = cache.num_bytes
        return cache

    def _refused(self, error: Exception, what: str, tokens: int | None) -> Exception:
        """NotEnoughMemory for a refused allocation; any other error as it is."""
        if not is_out_of_memory(error) or isinstance(error, NotEnoughMemory):
            return error
        clear_frames(error.__traceback__)  # they hold the tensors of the failed work
        self._give_back()  # what it freed shall serve the next, also as fresh maps
        size = "" if tokens is None else f" of {tokens} tokens"
        on_gpu = self.device.type == "cuda"
        account = self.memory_account() if self.budget.kv_bytes or on_gpu else {}
        parts = ", ".join(f"{part} {size // MIB}" for part, size in account.items() if size)
        return NotEnoughMemory(
            f"No memory for {what}{size}: the allocator refused within {self.device_bytes // MIB} MiB of device memory"
            f"{f' (in MiB: {parts})' if parts else ''}; lower max_num_batched_tokens or the KV pool, or "
            f"{'free what other processes hold of the device' if on_gpu else 'raise device_memory_bytes'}.",
            account,
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device {name!r} is not known; use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: this PyTorch finds no GPU that it can use; use --device cpu or auto")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in known:
        raise ValueError(f"dtype {name!r} is not known; use auto, {' or '.join(known)}")
    return known[name]
