"""What the engine really works with, where that may differ from what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infradoc_engine.engine import Engine
from infradoc_engine.knobs import KnobValue
from infradoc_engine.model_runner import ModelRunner

InForce = Callable[[Mapping[str, KnobValue]], dict[str, KnobValue]]

_SCHEDULER_KNOBS = (
    *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "watermark"),
    *("chunked_prefill", "prefix_caching", "preemption_mode"),
)


def read_in_force(engine: Engine, runner: ModelRunner) -> InForce:
    """A reader of knob values: given the ones that are shown, those that count.

    A change that was refused may have left a smaller pool, a new pool no swap space.
    """

    def read(shown: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        limits = engine.scheduler.limits
        values: dict[str, KnobValue] = {name: getattr(limits, name) for name in _SCHEDULER_KNOBS}
        values["block_size"] = runner.block_size
        values["kv_pool_tokens"] = runner.num_blocks * runner.block_size
        values["gpu_memory_utilization"] = runner.budget.utilization
        # In whole blocks, but shown as it was asked for: who reads its value back shall find it.
        whole = runner.host_blocks_for(int(shown["swap_space"] or 0)) == runner.num_host_blocks
        values["swap_space"] = shown["swap_space"] if whole else runner.budget.host_bytes
        return values

    return read
