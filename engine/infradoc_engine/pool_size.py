"""How many KV blocks fit, and refusals that say where the memory goes and which settings would fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infradoc_engine.memory import MIB, NotEnoughMemory
from infradoc_engine.sizes import size_value, up_to_mib

NOTHING_FITS = "no setting makes room: free memory of the device or serve a smaller model"


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What the pool is sized from; sizes in bytes or tokens as named."""

    device_bytes: int
    utilization: float
    weight_bytes: int
    activation_bytes: int
    other_bytes: int
    bytes_per_token: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    pool_tokens: int | None  # asked for; None: as much as helps
    graph_bytes: int = 0
    total_bytes: int | None = None  # of a GPU, whose other processes count too; None: on the CPU

    @property
    def budget_bytes(self) -> int:
        return int(self.device_bytes * self.utilization)

    @property
    def taken_bytes(self) -> int:
        """By all parts but KV."""
        return self.weight_bytes + self.activation_bytes + self.graph_bytes + self.other_bytes

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.taken_bytes

    def account(self) -> dict[str, int]:
        return {
            "weights": self.weight_bytes,
            "kv": max(self.free_bytes, 0),
            "activations": self.activation_bytes,
            "graphs": self.graph_bytes,
            "other": self.other_bytes,
        }


def size_pool(ask: PoolRequest) -> int:
    """Number of KV blocks. Raises NotEnoughMemory with the settings that would fit."""
    block_bytes = ask.bytes_per_token * ask.block_size
    fitting = max(ask.free_bytes, 0) // block_bytes
    needed = -(-ask.max_model_len // ask.block_size)
    if ask.pool_tokens is not None:
        blocks = ask.pool_tokens // ask.block_size
        if blocks < needed:
            raise _pool_too_small(ask, blocks, needed)
        if blocks > fitting:
            raise _no_room(ask, blocks, fitting)
        return blocks
    if fitting < needed:
        raise _no_room(ask, needed, fitting)
    return min(fitting, needed * ask.max_num_seqs)


def _pool_too_small(ask: PoolRequest, blocks: int, needed: int) -> NotEnoughMemory:
    fits = {"kv_pool_tokens": needed * ask.block_size}
    if blocks:
        fits["max_model_len"] = blocks * ask.block_size
    return NotEnoughMemory(
        f"A KV pool of {ask.pool_tokens} tokens ({blocks} blocks of {ask.block_size}) cannot hold one request of "
        f"max_model_len {ask.max_model_len} tokens; {_settings(fits)}.",
        ask.account(),
        fits,
    )


def _no_room(ask: PoolRequest, blocks: int, fitting: int) -> NotEnoughMemory:
    pool_bytes = blocks * ask.bytes_per_token * ask.block_size
    fits = _fitting_settings(ask, pool_bytes, fitting)
    graphs = f", CUDA graphs {_mib(ask.graph_bytes)} MiB" if ask.graph_bytes else ""
    rest = "the rest of the process" if ask.total_bytes is None else "other processes and the driver"
    return NotEnoughMemory(
        f"No memory for a KV pool of {blocks * ask.block_size} tokens ({_mib(pool_bytes)} MiB): of "
        f"{_mib(ask.device_bytes)} MiB times {ask.utilization:g} the weights take {_mib(ask.weight_bytes)} MiB, a step "
        f"{_mib(ask.activation_bytes)} MiB{graphs} and {rest} {_mib(ask.other_bytes)} MiB, which leaves "
        f"{_mib(max(ask.free_bytes, 0))} MiB; {_settings(fits)}.",
        ask.account(),
        fits,
    )


def _fitting_settings(ask: PoolRequest, pool_bytes: int, fitting: int) -> dict[str, float]:
    """Single changes that make room for the pool, or the largest pool that there is room for."""
    needed = ask.taken_bytes + pool_bytes
    fits: dict[str, float] = {}
    if ask.total_bytes is None:
        fits["device_memory_bytes"] = up_to_mib(int(needed / ask.utilization) + 1)
    else:  # a GPU has what it has; more of it can be used
        share = math.ceil(1000 * needed / ask.device_bytes) / 1000
        if share <= 1.0:
            fits["gpu_memory_utilization"] = share
        if ask.graph_bytes and needed - ask.graph_bytes <= ask.budget_bytes:
            fits["enforce_eager"] = True
    if ask.pool_tokens is not None:
        if fitting * ask.block_size >= ask.max_model_len:
            fits["kv_pool_tokens"] = fitting * ask.block_size
    elif fitting:
        fits["max_model_len"] = fitting * ask.block_size
    return fits


def weights_refusal(
    name: str, weight_bytes: int, other_bytes: int, device_bytes: int, utilization: float
) -> NotEnoughMemory:
    """For weights that do not fit a GPU beside what others hold of it."""
    share = math.ceil(1000 * (weight_bytes + other_bytes) / device_bytes) / 1000
    fits: dict[str, float] = {"gpu_memory_utilization": share} if share < 1.0 else {}
    what_next = f"give at least --gpu-memory-utilization {share}, and room for KV" if fits else NOTHING_FITS
    return NotEnoughMemory(
        f"The weights of {name or 'the model'} take {_mib(weight_bytes)} MiB, but of {_mib(device_bytes)} MiB of "
        f"device memory times {utilization:g} other processes and the driver hold {_mib(other_bytes)} MiB; "
        f"{what_next}.",
        {"weights": weight_bytes, "other": other_bytes},
        fits,
    )


def graph_refusal(rows: int, account: Mapping[str, int], device_bytes: int) -> NotEnoughMemory:
    """For CUDA graphs that find no memory; `rows` is the largest batch that was to get one."""
    fits: dict[str, float] = {"enforce_eager": True}
    parts = ", ".join(f"{part} {_mib(size)} MiB" for part, size in account.items() if size)
    return NotEnoughMemory(
        f"No memory for the CUDA graphs of batches of up to {rows} rows: of {_mib(device_bytes)} MiB of device memory "
        f"these parts are taken: {parts or 'none'}; {_settings(fits)}, or a lower --cuda-graph-max-bs.",
        account,
        fits,
    )


def _mib(num_bytes: int) -> int:
    return -(-num_bytes // MIB)


def _settings(fits: Mapping[str, float]) -> str:
    """Names settings that fit, as the engine's flags."""
    if not fits:
        return NOTHING_FITS
    return "this fits: " + " or ".join(_option(knob, value) for knob, value in fits.items())


def _option(knob: str, value: float) -> str:
    shown = size_value(int(value)) if knob == "device_memory_bytes" else value
    return f"--{knob.replace('_', '-')}{'' if value is True else f' {shown}'}"
