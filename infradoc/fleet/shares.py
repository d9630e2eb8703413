"""The latency ledger as shares: where the time of requests goes, and what each stage costs on average."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc.signals.window import increase
from infradoc_rules.model import SignalFrame

STAGES = ("receive", "template", "tokenize", "queue", "prefill", "preempted", "decode", "detokenize", "send")


@dataclass(frozen=True, slots=True)
class StageShare:
    """One stage: seconds in all in the window, the mean a request, and the share of the sum of all stages."""

    stage: str
    seconds: float
    mean: float | None
    share: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """`requests` finished in the window; `end_to_end` is their mean time in seconds, measured by itself."""

    stages: tuple[StageShare, ...]
    requests: int
    end_to_end: float | None


def ledger(frame: SignalFrame, seconds: float = 60.0) -> Ledger:
    """The ledger over the last `seconds`; no stages when the server shows none or no request ended."""
    start = frame.now - seconds
    total: dict[str, float] = {}
    for series in frame.select("llm_request_stage_seconds_sum"):
        stage = series.labels.get("stage", "")
        total[stage] = total.get(stage, 0.0) + increase(series, start, frame.now)
    count = round(sum(increase(one, start, frame.now) for one in frame.select("llm_request_seconds_count")))
    whole = sum(increase(one, start, frame.now) for one in frame.select("llm_request_seconds_sum"))
    everything = sum(total.values())
    order = [*STAGES, *sorted(set(total) - set(STAGES))]
    stages = tuple(
        StageShare(name, total[name], total[name] / count if count else None, total[name] / everything)
        for name in order
        if name in total and everything > 0 and count
    )
    return Ledger(stages, count, whole / count if count else None)
