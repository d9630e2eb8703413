"""Families that are read at scrape time: the engine's state, its configuration, the server's processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc_engine.core.ledger import Ledger
from infradoc_engine.engine import Engine
from infradoc_engine.exposition import Sample, write_family
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.server.live_config import LiveConfig
from infradoc_engine.snapshot import Snapshot
from infradoc_engine.tokenizer_pool import TokenizerPool

MEMORY_PARTS = ("weights", "kv", "activations", "graphs", "other")


@dataclass(frozen=True, slots=True)
class _State:
    """What must be read at one moment."""

    ledger: Ledger
    finished: Mapping[Any, int]
    preemptions: Mapping[Any, int]
    running: int
    waiting: int
    swapped: int
    host_usage: float
    oldest_leak: float


class EngineCollector:
    """Scheduler, cache and memory; the engine's lock is held for the copies alone.

    `trouble` is what /health asks: both must say the same.
    """

    def __init__(
        self,
        engine: Engine,
        memory_account: Callable[[], Mapping[str, int]],
        trouble: Callable[[], str | None],
    ) -> None:
        self._engine = engine
        self._memory_account = memory_account
        self._trouble = trouble
        self._state = Snapshot(engine.lock, self._read)

    def _read(self) -> _State:
        engine, cache = self._engine, self._engine.cache
        stats = engine.scheduler.stats
        return _State(
            ledger=cache.ledger(),
            finished=dict(stats.finished),
            preemptions=dict(stats.preemptions),
            running=engine.num_running,
            waiting=engine.num_waiting,
            swapped=engine.scheduler.num_swapped,
            host_usage=cache.host_usage_ratio,
            oldest_leak=max((item.age_seconds for item in cache.leaked_blocks()), default=0.0),
        )

    def __call__(self, out: list[str]) -> None:
        engine, state = self._engine, self._state()
        ledger, stats = state.ledger, engine.scheduler.stats
        blocks = ledger.num_blocks
        _gauge(out, "llm_requests_running", "Requests in the running batch", state.running)
        _gauge(out, "llm_requests_waiting", "Requests queued in the scheduler", state.waiting)
        _gauge(out, "llm_requests_swapped", "Waiting requests whose KV is in host memory", state.swapped)
        _gauge(out, "llm_kv_host_usage_ratio", "Share of the host tier that is held", state.host_usage)
        oldest = state.oldest_leak
        _gauge(out, "llm_kv_leaked_block_age_seconds", "Age of the oldest leaked block", oldest)
        _counter(out, "llm_oom_total", "Steps that the allocator refused", [({}, engine.oom_steps)])
        _gauge(out, "llm_engine_draining", "1 while nothing is admitted and new requests queue", int(engine.draining))
        _counter(out, "llm_requests_finished_total", "Finished requests", _by("reason", state.finished))
        _gauge(out, "llm_kv_cache_usage_ratio", "Share of KV blocks that are not available", ledger.usage_ratio)
        _gauge(out, "llm_kv_pool_blocks", "Blocks in the pool", blocks)
        _gauge(out, "llm_kv_available_blocks", "Blocks that can be handed out", ledger.available_blocks)
        write_family(out, "llm_kv_blocks", "gauge", "The block ledger", _by("state", ledger.by_state()))
        _gauge(out, "llm_kv_block_size_tokens", "Tokens per block", ledger.block_size)
        _gauge(out, "llm_kv_pool_tokens", "Tokens that the pool holds", blocks * ledger.block_size)
        _gauge(out, "llm_kv_evictable_tokens", "Cached tokens no request refers to", ledger.cached * ledger.block_size)
        _gauge(out, "llm_kv_fragmentation_ratio", "Allocated KV that holds no token", ledger.fragmentation_ratio)
        _gauge(out, "llm_kv_tail_waste_tokens", "Empty token places in last blocks", ledger.tail_waste_tokens)
        _counter(out, "llm_preemptions_total", "Requests that lost their blocks", _by("reason", state.preemptions))
        for name, means, value in (
            ("llm_recomputed_tokens_total", "Tokens computed again after preemption", stats.recomputed_tokens),
            ("llm_prefix_cache_queried_tokens_total", "Prompt tokens looked up", stats.prefix_queried_tokens),
            ("llm_prompt_tokens_total", "Prompt tokens taken in, cached ones included", stats.prompt_tokens),
            ("llm_prompt_computed_tokens_total", "Prompt tokens computed", stats.prompt_computed_tokens),
            ("llm_generation_tokens_total", "Output tokens", stats.generation_tokens),
        ):
            _counter(out, name, means, [({}, value)])
        hits = [({"tier": "device"}, stats.prefix_hit_tokens)]
        _counter(out, "llm_prefix_cache_hit_tokens_total", "Prompt tokens found in the prefix cache", hits)
        _gauge(out, "llm_engine_ready", "1 while tokens can move", int(self._trouble() is None))
        if engine.last_step_unix is not None:
            means = "Unix time of the last finished step"
            _gauge(out, "llm_engine_last_step_timestamp_seconds", means, engine.last_step_unix)
        account = self._memory_account()
        parts: dict[str, int] = {part: int(account.get(part, 0)) for part in MEMORY_PARTS}
        write_family(out, "llm_device_memory_bytes", "gauge", "The engine's memory account", _by("part", parts))


class RunnerCollector:
    """What only the runner counts: graphs, transfers to the host, torch's allocator on a GPU."""

    def __init__(self, engine: Engine, runner: ModelRunner) -> None:
        self._engine = engine
        self._runner = runner
        self._gpu = str(runner.device.index or 0)

    def __call__(self, out: list[str]) -> None:
        steps, graphs = self._engine.scheduler.stats.steps, self._runner.graph_steps
        by_graph = _by("graph", {"true": graphs, "false": max(steps - graphs, 0)})
        _counter(out, "llm_steps_total", "Steps run, as a CUDA graph or not", by_graph)
        moved = _by("direction", self._runner.transfer_bytes())
        _counter(out, "llm_kv_transfer_bytes_total", "KV moved between device and host", moved)
        stats, labels = self._runner.allocator_stats(), {"gpu": self._gpu}
        for key, value in stats.items():
            total = key in ("ooms", "alloc_retries")
            name = f"torch_{key}_total" if total else f"torch_{key}"
            write_family(out, name, "counter" if total else "gauge", "torch's caching allocator", [(labels, value)])


class ConfigCollector:
    """Knobs as numbers or infos, and what is served."""

    def __init__(self, live: LiveConfig, engine: Engine, *, model: str, dtype: str, quantization: str | None) -> None:
        self._live = live
        self._engine = engine
        self._model = {"model": model, "dtype": dtype, "quantization": quantization or "none"}

    def __call__(self, out: list[str]) -> None:
        numbers: list[Sample] = []
        infos: list[Sample] = []
        for name, value, origin in self._live.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers.append(({"knob": name, "origin": origin}, value))
            elif value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                infos.append(({"knob": name, "value": text, "origin": origin}, 1))
        write_family(out, "config_value", "gauge", "Number of a knob", numbers)
        write_family(out, "config_info", "gauge", "A knob whose value is not a number", infos)
        model = self._model | {"max_model_len": str(self._live.max_model_len)}
        write_family(out, "llm_model_info", "gauge", "What is served", [(model, 1)])
        cache = {
            "block_size": str(self._engine.cache.block_size),
            "num_blocks": str(self._engine.cache.num_blocks),
            "kv_cache_dtype": self._model["dtype"],
            "prefix_caching": str(self._live.value("prefix_caching")).lower(),
            "gpu_memory_utilization": str(self._live.value("gpu_memory_utilization")),
        }
        write_family(out, "llm_cache_config_info", "gauge", "Cache configuration", [(cache, 1)])


class ProcessCollector:
    """Memory, CPU time and age of the server's processes, from /proc (nothing where there is none)."""

    def __init__(self, pool: TokenizerPool) -> None:
        self._pool = pool
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0

    def __call__(self, out: list[str]) -> None:
        waiting = self._pool.num_waiting
        _gauge(out, "llm_tokenizer_queue_requests", "Requests waiting for a tokenizer worker", waiting)
        rows: list[tuple[dict[str, str], tuple[float, float, float, int]]] = []
        for role, pid in [("api", os.getpid()), *(("tokenizer", pid) for pid in self._pool.pids)]:
            found = self._read(pid)
            if found is not None:
                rows.append(({"role": role, "pid": str(pid)}, found))
        for index, (name, kind, means) in enumerate(
            (
                ("proc_resident_memory_bytes", "gauge", "Resident memory"),
                ("proc_cpu_seconds_total", "counter", "CPU time"),
                ("proc_start_time_seconds", "gauge", "Unix start time"),
                ("proc_open_fds", "gauge", "Open file descriptors"),
            )
        ):
            write_family(out, name, kind, means, ((labels, found[index]) for labels, found in rows))

    def _read(self, pid: int) -> tuple[float, float, float, int] | None:
        try:
            # The name may hold spaces and brackets: fields are counted from the last bracket.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            fds = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (no Path object per descriptor)
        except OSError:
            return None
        cpu = (int(fields[11]) + int(fields[12])) / self._ticks
        started = self._boot + int(fields[19]) / self._ticks
        return float(int(fields[21]) * self._page), cpu, started, fds


def _by(label: str, values: Mapping[Any, int]) -> list[Sample]:
    return [({label: name}, value) for name, value in values.items()]


def _gauge(out: list[str], name: str, means: str, value: float) -> None:
    write_family(out, name, "gauge", means, [({}, value)])


def _counter(out: list[str], name: str, means: str, samples: Iterable[Sample]) -> None:
    write_family(out, name, "counter", means, samples)
