"""Turns a ScheduleOutput into sampled tokens: batch tensors, one pass of the model, the sampler."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.kv_cache import KVCache, bytes_per_token
from infradoc_engine.memory import (
    MIB,
    MemoryLimit,
    NotEnoughMemory,
    PoolRequest,
    available_bytes,
    is_out_of_memory,
    measure_peak,
    size_pool,
    status_bytes,
    trim_heap,
)
from infradoc_engine.models import registry
from infradoc_engine.models.llama import weight_bytes
from infradoc_engine.runner_limits import RUNTIME_BYTES, RunnerLimits, activation_bound, check_limits, largest_step
from infradoc_engine.sampler import GREEDY, Sampled, Sampler, SamplingParams
from infradoc_engine.weights import ModelFiles
from infradoc_kernels import ops


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
    ) -> None:
        """Loads the weights, measures a step at the limits and sizes the KV pool.

        `device_memory_bytes` on CPU is a real limit on this process from now on (see MemoryLimit); without it the
        memory available at start counts and nothing is enforced. Raises ModelFileError, NotEnoughMemory (with the
        account and the nearest settings that fit), ValueError for a setting outside its range.
        """
        self.config = files.config
        self.device, self.dtype = _device(device), _dtype(dtype, _device(device))
        self.block_size = block_size
        self.limits = RunnerLimits(max_num_batched_tokens, max_num_seqs, max_model_len)
        check_limits(self.limits, block_size, gpu_memory_utilization, self.config.max_positions)
        self._utilization = gpu_memory_utilization
        self._limit, self._device_bytes = self._open_budget(device_memory_bytes)
        self._sampler = Sampler()
        self.activation_bytes = 0
        try:
            with torch.inference_mode():
                self._load(files)
                self.activation_bytes = self._profile()
                self._cache = self._allocate_pool(kv_pool_tokens)
        except BaseException:
            if self._limit is not None:
                self._limit.lift()
            raise

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def device_bytes(self) -> int:
        """The device memory that the budget was taken from."""
        return self._device_bytes

    def kv_bytes_per_token(self) -> int:
        """Bytes of KV of one token over all layers."""
        return bytes_per_token(self.config, self.dtype)

    def memory_account(self) -> dict[str, int]:
        """Bytes by part: weights, kv, activations (the measured peak of a step), graphs, other."""
        return {
            "weights": self._model.weight_bytes,
            "kv": self._cache.num_bytes,
            "activations": self.activation_bytes,
            "graphs": 0,
            "other": self._other_bytes(self._model.weight_bytes + self._cache.num_bytes),
        }

    def free_bytes(self) -> int:
        """What a larger KV pool could still take of the budget."""
        left = int(self._device_bytes * self._utilization) - sum(self.memory_account().values())
        if self._limit is None and self.device.type == "cpu":
            left = min(left, available_bytes())
        return max(left, 0)

    # -- work --------------------------------------------------------------------------------------------------------

    def execute(self, output: ScheduleOutput, params: Mapping[str, SamplingParams]) -> dict[str, Sampled]:
        """Runs one step: copies blocks, writes KV, returns a token for each request that samples.

        A request without params is sampled greedily. Raises NotEnoughMemory when the allocator refuses; KV already
        written stays valid, so the step may be run again.
        """
        try:
            with torch.inference_mode():
                self._cache.copy_blocks(output.block_copies)
                if not output.scheduled:
                    return {}
                logits = self._forward(output.scheduled, self._cache)
                sampling = [s.request_id for s in output.scheduled if s.samples]
                if not sampling:
                    return {}
                picked = self._sampler.sample(logits, sampling, [params.get(i, GREEDY) for i in sampling])
        except Exception as error:
            raise self._refused(error, "a step", output.num_prefill_tokens + output.num_decode_tokens) from error
        return dict(zip(sampling, picked, strict=True))

    def release(self, request_id: str) -> None:
        """Drops what is kept for a request: call it when the request is finished."""
        self._sampler.release(request_id)

    def grow_kv(self, num_blocks: int) -> None:
        """Enlarges the KV pool between two steps; contents stay. NotEnoughMemory leaves the old pool whole."""
        try:
            with torch.inference_mode():
                self._cache.grow(num_blocks)
        except Exception as error:
            raise self._refused(error, "a KV pool", num_blocks * self.block_size) from error

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

    def _ids(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _open_budget(self, device_memory_bytes: int | None) -> tuple[MemoryLimit | None, int]:
        if self.device.type == "cuda":
            _, total = torch.cuda.mem_get_info(self.device)
            if device_memory_bytes and device_memory_bytes < total:
                torch.cuda.set_per_process_memory_fraction(device_memory_bytes / total, self.device)
            return None, min(device_memory_bytes or total, total)
        need = weight_bytes(self.config, self.dtype, self.device)
        device_bytes = device_memory_bytes or available_bytes()
        if need > device_bytes * self._utilization:
            one_request = self.limits.max_model_len * self.kv_bytes_per_token()
            least = need + activation_bound(self.config, self.limits) + one_request + RUNTIME_BYTES
            wanted = int(least / self._utilization)
            raise NotEnoughMemory(
                f"The weights of {self.config.name or 'the model'} take {need // MIB} MiB, but {device_bytes // MIB} "
                f"MiB of device memory times {self._utilization:g} is less; give at least "
                f"--device-memory-bytes {wanted}.",
                {"weights": need},
                {"device_memory_bytes": wanted},
            )
        self._base_bytes = status_bytes("VmData") or 0
        return (MemoryLimit(device_memory_bytes) if device_memory_bytes else None), device_bytes

    def _load(self, files: ModelFiles) -> None:
        try:
            self._model = registry.build(
                self.config, files.tensors(), self.dtype, self.device, self.limits.max_model_len
            )
        except Exception as error:
            raise self._refused(error, "the weights", None) from error
        trim_heap()

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
            Sampler().sample(logits, [s.request_id for s in step], params)

        try:
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
                before = torch.cuda.memory_allocated(self.device)
                work()
                return int(torch.cuda.max_memory_allocated(self.device)) - before
            peak = measure_peak(work)
            trim_heap()
        except Exception as error:
            raise self._refused(error, "a step at the limits", self.limits.max_num_batched_tokens) from error
        return peak if peak is not None else activation_bound(self.config, self.limits)

    def _allocate_pool(self, pool_tokens: int | None) -> KVCache:
        num_blocks = size_pool(self._pool_request(pool_tokens))
        try:
            return KVCache(self.config, num_blocks, self.block_size, self.dtype, self.device)
        except Exception as error:
            raise self._refused(error, "the KV pool", num_blocks * self.block_size) from error

    def _other_bytes(self, known: int) -> int:
        """What the process took beside the known parts since the budget was opened: stacks, buffers, heap slack."""
        if self.device.type != "cpu":
            return 0
        return max((status_bytes("VmData") or 0) - self._base_bytes - known, 0)

    def _pool_request(self, pool_tokens: int | None) -> PoolRequest:
        weights = self._model.weight_bytes
        return PoolRequest(
            device_bytes=self._device_bytes,
            utilization=self._utilization,
            weight_bytes=weights,
            activation_bytes=self.activation_bytes,
            other_bytes=self._other_bytes(weights),
            bytes_per_token=self.kv_bytes_per_token(),
            block_size=self.block_size,
            max_model_len=self.limits.max_model_len,
            max_num_seqs=self.limits.max_num_seqs,
            pool_tokens=pool_tokens,
        )

    def _refused(self, error: Exception, what: str, tokens: int | None) -> Exception:
        """NotEnoughMemory for a refused allocation; any other error as it is."""
        if not is_out_of_memory(error) or isinstance(error, NotEnoughMemory):
            return error
        trim_heap()  # what the failed work freed shall serve the next, also as fresh maps
        size = "" if tokens is None else f" of {tokens} tokens"
        account = self.memory_account() if hasattr(self, "_cache") else {}
        parts = ", ".join(f"{part} {size // MIB}" for part, size in account.items() if size)
        return NotEnoughMemory(
            f"No memory for {what}{size}: the allocator refused within {self._device_bytes // MIB} MiB of device memory"
            f"{f' (in MiB: {parts})' if parts else ''}; lower max_num_batched_tokens or the KV pool, or raise "
            "device_memory_bytes.",
            account,
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device {name!r} is not known; use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: this PyTorch finds no GPU that it can use; use --device cpu or auto")
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in known:
        raise ValueError(f"dtype {name!r} is not known; use auto, {' or '.join(known)}")
    return known[name]
