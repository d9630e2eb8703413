"""The engine's share of the device: what it was given, what takes how much of it, what is left for KV."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from infradoc_engine.gpu_account import look
from infradoc_engine.kv_cache import bytes_per_token
from infradoc_engine.memory import (
    MIB,
    MemoryLimit,
    NotEnoughMemory,
    available_bytes,
    status_bytes,
    trim_heap,
)
from infradoc_engine.models.llama import weight_bytes
from infradoc_engine.pool_size import PoolRequest, graph_refusal, size_pool, weights_refusal
from infradoc_engine.runner_limits import RUNTIME_BYTES, RunnerLimits, StepPeak, activation_bound, check_limits
from infradoc_engine.sizes import size_value, up_to_mib
from infradoc_engine.weights.config import ModelConfig

if TYPE_CHECKING:
    from infradoc_engine.cuda_graphs import GraphCost


class MemoryBudget:
    """`step` is the measured peak of a step; None = nothing was measured and nothing is set aside for it.

    The runner keeps `weight_bytes`, `kv_bytes` and `host_bytes` up to date. `device_memory_bytes` on CPU is a real
    limit on this process from now on (see MemoryLimit).
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        *,
        device_memory_bytes: int | None,
        utilization: float,
        limits: RunnerLimits,
    ) -> None:
        """NotEnoughMemory when the weights alone do not fit."""
        self.config, self.dtype, self.device = config, dtype, device
        self.utilization, self.limits = utilization, limits
        self.step: StepPeak | None = None
        self.weight_bytes = self.kv_bytes = self.host_bytes = 0
        self.graph_bytes = self._graph_bytes_in_driver = 0
        self._limit: MemoryLimit | None = None
        self.total_bytes: int | None = None  # of a GPU: no setting can give more
        if device.type == "cuda":
            self.device_bytes = self._open_gpu(device_memory_bytes)
            self._check_weights()
        else:
            self.device_bytes = device_memory_bytes or available_bytes()
            self._check_weights()
            if device_memory_bytes:
                self._limit = MemoryLimit(device_memory_bytes)
            self._base_bytes = status_bytes("VmData") or 0  # with what the limit has set aside for the host's own use

    def _open_gpu(self, device_memory_bytes: int | None) -> int:
        self.total_bytes = look(self.device).total
        if device_memory_bytes and device_memory_bytes < self.total_bytes:
            torch.cuda.set_per_process_memory_fraction(device_memory_bytes / self.total_bytes, self.device)
        return min(device_memory_bytes or self.total_bytes, self.total_bytes)

    def _check_weights(self) -> None:
        need = weight_bytes(self.config, self.dtype, self.device)
        on_gpu = self.device.type == "cuda"
        other = self.other_bytes() if on_gpu else 0
        if need + other <= self.device_bytes * self.utilization:
            return
        if on_gpu:
            raise weights_refusal(self.config.name, need, other, self.device_bytes, self.utilization)
        one_request = self.limits.max_model_len * self.bytes_per_token
        least = need + activation_bound(self.config, self.limits) + one_request + RUNTIME_BYTES
        wanted = up_to_mib(int(least / self.utilization))
        raise NotEnoughMemory(
            f"The weights of {self.config.name or 'the model'} take {need // MIB} MiB, but {self.device_bytes // MIB} "
            f"MiB of device memory times {self.utilization:g} is less; give at least "
            f"--device-memory-bytes {size_value(wanted)}.",
            {"weights": need},
            {"device_memory_bytes": wanted},
        )

    def lift(self) -> None:
        """Take the limit off the process again: the engine did not start."""
        if self._limit is not None:
            self._limit.lift()

    # -- accounts ----------------------------------------------------------------------------------------------------

    @property
    def bytes_per_token(self) -> int:
        """KV of one token over all layers."""
        return bytes_per_token(self.config, self.dtype)

    def activation_bytes(self, limits: RunnerLimits | None = None) -> int:
        """What is set aside for a step at `limits`, the present ones if None; 0 where nothing was measured."""
        return 0 if self.step is None else self.step.at(limits or self.limits)

    def step_need(self) -> int:
        """What a step at the present limits takes at most, set aside or not."""
        return self.activation_bytes() or activation_bound(self.config, self.limits)

    def account(self) -> dict[str, int]:
        """Bytes by part: weights, kv, activations (set aside for a step), graphs, other."""
        return {
            "weights": self.weight_bytes,
            "kv": self.kv_bytes,
            "activations": self.activation_bytes(),
            "graphs": self.graph_bytes,
            "other": self.other_bytes(),
        }

    def other_bytes(self) -> int:
        """CPU: what the process took beside the known parts since the budget was opened: stacks, buffers, heap slack.

        GPU: what other processes and the driver hold of the engine's share.
        """
        if self.device.type != "cpu":
            return look(self.device).others(self.device_bytes, self._graph_bytes_in_driver)
        known = self._base_bytes + self.weight_bytes + self.kv_bytes + self.host_bytes
        return max((status_bytes("VmData") or 0) - known, 0)

    def free_bytes(self) -> int:
        """What a larger KV pool or a larger step could still take."""
        left = int(self.device_bytes * self.utilization) - sum(self.account().values())
        if self._limit is None and self.device.type == "cpu":
            left = min(left, available_bytes())
        return max(left, 0)

    # -- plans -------------------------------------------------------------------------------------------------------

    def plan_pool(
        self,
        pool_tokens: int | None,
        block_size: int,
        *,
        max_model_len: int | None = None,
        utilization: float | None = None,
    ) -> int:
        """Blocks of a pool of `pool_tokens` (None: as many as help) under these settings, the present ones if None.

        Raises NotEnoughMemory with settings that fit, ValueError for a setting outside its range.
        """
        limits = replace(self.limits, max_model_len=max_model_len or self.limits.max_model_len)
        share = utilization or self.utilization
        check_limits(limits, block_size, share, self.config.max_positions)
        trim_heap()
        other = self.other_bytes()
        if self.kv_bytes and share == self.utilization:  # what the present pool takes can be had again
            taken = self.weight_bytes + self.kv_bytes + self.activation_bytes() + self.graph_bytes
            other = min(other, max(int(self.device_bytes * share) - taken, 0))
        ask = PoolRequest(
            device_bytes=self.device_bytes,
            utilization=share,
            weight_bytes=self.weight_bytes,
            activation_bytes=self.activation_bytes(limits),
            other_bytes=other,
            bytes_per_token=self.bytes_per_token,
            block_size=block_size,
            max_model_len=limits.max_model_len,
            max_num_seqs=limits.max_num_seqs,
            pool_tokens=pool_tokens,
            graph_bytes=self.graph_bytes,
            total_bytes=self.total_bytes,
        )
        return size_pool(ask)

    def note_graphs(self, cost: GraphCost) -> None:
        """What CUDA graphs take, or took before the pool moved and will take again."""
        if cost.num_bytes >= self.graph_bytes:
            self.graph_bytes, self._graph_bytes_in_driver = cost.num_bytes, cost.num_bytes - cost.in_torch

    def no_graphs(self, rows: int) -> NotEnoughMemory:
        """The refusal when graphs for batches of up to `rows` find no memory."""
        return graph_refusal(rows, self.account(), self.device_bytes)

    def check_growth(self, num_blocks: int, block_size: int) -> None:
        """NotEnoughMemory with the pool that fits when growing to `num_blocks` would eat what a step needs.

        Not asked for an engine that sets nothing aside: there the allocator alone decides.
        """
        block_bytes = self.bytes_per_token * block_size
        extra, free = num_blocks * block_bytes - self.kv_bytes, self.free_bytes()
        if self.step is None or extra <= free:
            return
        fitting = (self.kv_bytes + free) // block_bytes * block_size
        raise NotEnoughMemory(
            f"No memory for a KV pool of {num_blocks * block_size} tokens: {extra // MIB} MiB more are needed and "
            f"{free // MIB} MiB are free beside the {_mib(self.activation_bytes())} MiB of a step; at most {fitting} "
            "tokens fit.",
            self.account(),
            {"kv_pool_tokens": fitting},
        )

    def check_step(self, limits: RunnerLimits) -> None:
        """NotEnoughMemory with the nearest value of the raised limit when a step at `limits` has no room."""
        extra, free = self.activation_bytes(limits) - self.activation_bytes(), self.free_bytes()
        if extra <= 0 or extra <= free:
            return
        knob = "max_num_seqs" if limits.max_num_seqs != self.limits.max_num_seqs else "max_num_batched_tokens"
        low, high = int(getattr(self.limits, knob)), int(getattr(limits, knob))
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.activation_bytes(replace(limits, **{knob: middle})) - self.activation_bytes() <= free
            low, high = (middle, high) if fits else (low, middle)
        raise NotEnoughMemory(
            f"a step would take {extra // MIB} MiB more and {free // MIB} MiB are free; at most {low} fits, or make "
            "the KV pool smaller first.",
            self.account(),
            {knob: low},
        )

    def check_host(self, num_bytes: int) -> None:
        """NotEnoughMemory when the swap space would grow beyond what the host has: pages are only taken when used."""
        extra, free = num_bytes - self.host_bytes, available_bytes()
        if extra <= free:
            return
        fitting = (self.host_bytes + free) // MIB * MIB
        raise NotEnoughMemory(
            f"No memory for a swap space of {_mib(num_bytes)} MiB: {free // MIB} MiB of host memory are available; at "
            f"most --swap-space {size_value(fitting)} fits.",
            self.account(),
            {"swap_space": fitting},
        )

    def allow_host(self, num_bytes: int) -> None:
        """Swap space stands for host memory: on the CPU it is mapped beside the budget, not inside it."""
        self.host_bytes = num_bytes
        if self._limit is not None:
            self._limit.allow_beside(num_bytes)


def _mib(num_bytes: int) -> int:
    return -(-num_bytes // MIB)
