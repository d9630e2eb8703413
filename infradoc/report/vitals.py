"""The few figures that everyone asks for first, each with a word on why it is missing when it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from infradoc.report.words import words
from infradoc.signals.percentiles import min_samples, percentile
from infradoc.signals.window import last_values
from infradoc_rules.model import SignalFrame

_Merge = Callable[[Iterable[float]], float]
_LATENCIES = (
    ("ttft", "llm_time_to_first_token_seconds", "client_time_to_first_token_seconds"),
    ("itl", "llm_inter_token_latency_seconds", "client_inter_token_latency_seconds"),
)


@dataclass(slots=True)
class Vitals:
    """`values` by name, None where unknown; `missing` says why, by name; `samples` are the n of percentiles."""

    values: dict[str, float | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def read_vitals(frame: SignalFrame, seconds: float, lang: str = "en") -> Vitals:
    """Vitals at `frame.now`; percentiles are over the last `seconds`. No P99 from fewer than 100 samples."""
    say = words(lang)
    vitals = Vitals()
    # A GPU may be seen without these: a device cut into MIG instances has no utilization of its own.
    no_gpu = say["not_shown"] if frame.select("gpu_info") else say["no_gpu"]
    _gauge(vitals, frame, "gpu_utilization_ratio", "gpu_utilization_ratio", max, no_gpu)
    _gauge(vitals, frame, "gpu_memory_used_bytes", "gpu_memory_used_bytes", sum, no_gpu)
    _gauge(vitals, frame, "queue_depth", "llm_requests_waiting", sum, say["not_shown"])
    _gauge(vitals, frame, "kv_usage_ratio", "llm_kv_cache_usage_ratio", max, say["not_shown"])
    for short, server, client in _LATENCIES:
        for quantile, label in ((0.5, "p50"), (0.99, "p99")):
            _percentile(vitals, frame, f"{short}_{label}_seconds", (server, client), quantile, seconds, say)
    return vitals


def _gauge(vitals: Vitals, frame: SignalFrame, name: str, signal: str, merge: _Merge, why: str) -> None:
    values = [value for _, value in last_values(frame, signal)]
    if values:
        vitals.values[name] = float(merge(values))
        return
    vitals.values[name] = None
    vitals.missing[name] = why


def _percentile(
    vitals: Vitals,
    frame: SignalFrame,
    name: str,
    signals: tuple[str, str],
    quantile: float,
    seconds: float,
    say: Mapping[str, str],
) -> None:
    need = min_samples(quantile)
    best = 0
    for signal, source in zip(signals, ("server", "client"), strict=True):
        found = percentile(frame, signal, quantile, seconds)
        best = max(best, found.n)
        if found.value is not None and found.n >= need:
            vitals.values[name] = round(found.value, 6)
            vitals.samples[name] = found.n
            vitals.sources[name] = source
            return
    vitals.values[name] = None
    seen = any(frame.select(f"{signal}_bucket") for signal in signals)
    vitals.missing[name] = say["few_samples"].format(n=best, need=need) if seen else say["not_shown"]
