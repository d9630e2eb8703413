"""From the launch configuration to a loaded model with its engine: everything that can fail before the port opens."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infradoc_engine.chat_template import render
from infradoc_engine.config import EngineConfig, cpu_count
from infradoc_engine.core.clock import MonotonicClock
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.scheduler import Scheduler
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import TokenEvent
from infradoc_engine.knobs import KnobValue
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.model_get import KNOWN_MODELS, find_model
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.server.openai import RenderChat
from infradoc_engine.tokenizer import TokenizerHandle
from infradoc_engine.weights import ModelFiles, open_model


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The model and what it decided: `knobs` has no derived value left open."""

    name: str
    files: ModelFiles
    runner: ModelRunner
    tokenizer: TokenizerHandle
    knobs: dict[str, KnobValue]


def use_threads(threads: int) -> None:
    """Compute threads of torch; the environment is set too, for libraries that read it when they are loaded."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)


def leave_threads() -> bool:
    """End the OpenMP team of the calling thread, which has computed its last; whether there was a way to.

    libgomp counts the threads of all teams: a second team beside an idle first one is more than the cores, and then
    every barrier goes to sleep at once instead of spinning for a moment. A decode step has some 200 of them: 20.2 ms
    against 14.9 on two cores. `omp_pause_resource_all` is OpenMP 5.0; soft (1) keeps what the runtime was set to.
    """
    try:
        return bool(ctypes.CDLL(None).omp_pause_resource_all(1) == 0)
    except (AttributeError, OSError):  # another runtime, or none
        return False


def load(config: EngineConfig) -> LoadedModel:
    """Read the model and size the pool. Raises ModelGetError, ModelFileError, NotEnoughMemory or ValueError."""
    knobs = dict(config.knobs)
    threads = cpu_count() if knobs["omp_num_threads"] is None else _whole(knobs["omp_num_threads"])
    knobs["omp_num_threads"] = threads
    use_threads(threads)
    path = find_model(config.model)
    files = open_model(path)
    tokenizer = TokenizerHandle(files)
    knobs["max_model_len"] = knobs["max_model_len"] or files.config.max_positions
    runner = ModelRunner(
        files,
        device=config.device,
        dtype=str(knobs["dtype"]),
        block_size=_whole(knobs["block_size"]),
        max_num_batched_tokens=_whole(knobs["max_num_batched_tokens"]),
        max_num_seqs=_whole(knobs["max_num_seqs"]),
        max_model_len=_whole(knobs["max_model_len"]),
        kv_pool_tokens=None if knobs["kv_pool_tokens"] is None else _whole(knobs["kv_pool_tokens"]),
        gpu_memory_utilization=float(knobs["gpu_memory_utilization"] or 0),
        device_memory_bytes=None if knobs["device_memory_bytes"] is None else _whole(knobs["device_memory_bytes"]),
        activation_profile=str(knobs["activation_profile"]),
        swap_space=_whole(knobs["swap_space"]),
        enforce_eager=bool(knobs["enforce_eager"]),
        cuda_graph_max_bs=_whole(knobs["cuda_graph_max_bs"]),
    )
    knobs["dtype"] = str(runner.dtype).removeprefix("torch.")
    knobs["kv_pool_tokens"] = runner.num_blocks * _whole(knobs["block_size"])
    name = config.model if config.model in KNOWN_MODELS else path.stem if path.is_file() else path.name
    leave_threads()  # from here on only the engine thread computes
    return LoadedModel(name, files, runner, tokenizer, knobs)


def build_engine(
    loaded: LoadedModel,
    metrics: EngineMetrics,
    deliver: Callable[[Sequence[TokenEvent]], None],
    log: Callable[[str], None],
) -> Engine:
    """Scheduler and cache for a loaded model, and the engine around them; not started yet."""
    knobs, clock = loaded.knobs, MonotonicClock()
    cache = KVCacheManager(
        loaded.runner.num_blocks,
        _whole(knobs["block_size"]),
        prefix_caching=bool(knobs["prefix_caching"]),
        watermark=float(knobs["watermark"] or 0),
        host_blocks=loaded.runner.num_host_blocks,
        clock=clock,
    )
    limits = SchedulerLimits(
        max_num_seqs=_whole(knobs["max_num_seqs"]),
        max_num_batched_tokens=_whole(knobs["max_num_batched_tokens"]),
        watermark=float(knobs["watermark"] or 0),
        max_model_len=_whole(knobs["max_model_len"]),
        chunked_prefill=bool(knobs["chunked_prefill"]),
        prefix_caching=bool(knobs["prefix_caching"]),
        preemption_mode="swap" if knobs["preemption_mode"] == "swap" else "recompute",
    )
    return Engine(Scheduler(limits, cache, clock), cache, loaded.runner, deliver=deliver, metrics=metrics, log=log)


def make_renderer(loaded: LoadedModel) -> RenderChat | None:
    """Messages to prompt text by the model's own template; None when it has none."""
    template = loaded.files.chat_template
    if template is None:
        return None
    model = loaded.files.config

    def text(token_id: int | None) -> str:
        return "" if token_id is None else loaded.tokenizer.decode([token_id], skip_special=False)

    bos, eos = text(model.bos_token_id), text(model.eos_token_ids[0] if model.eos_token_ids else None)

    def render_chat(messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        return render(template, messages, add_generation_prompt, bos_token=bos, eos_token=eos)

    with contextlib.suppress(ValueError):  # compiles the template; one that refuses this message may take others
        render_chat([{"role": "user", "content": "hello"}], True)
    return render_chat


def _whole(value: KnobValue) -> int:
    assert isinstance(value, int)
    return value
