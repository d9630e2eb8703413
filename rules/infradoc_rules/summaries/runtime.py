"""Verdicts that need several summaries together; runs after them.

Facts: oom.large_step? (a step asked for more than settings leave free, or what it asked for is not said),
oom.logprobs, oom.preprocessing,
serving.device_full, serving.starved_engine, serving.few_steady,
serving.pinned_queue, serving.prompt_bound, serving.moves, serving.slow_decode,
serving.eager_costs, batch.running?, cpu.frontend_first, cpu.tokenizer_first, cpu.engine_waits (something shows
that the engine behind a busy front end has time left), serving.load_chosen (the batch is what a load test was told).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact, samples
from infradoc_rules.values import number

_LARGE_BYTES = 1 << 30  # engines leave 1 to 8 GiB above the pool of a large device
_LARGE_SHARE = 0.03  # of a small one
_ROOMY = 0.8  # a memory share below which ordinary steps have room
_USUAL = 0.9  # the share that engines choose by themselves
_TIGHT = 0.94  # one that somebody raised
_BUSY = 0.9  # utilization of a device that has no time left
_SLOW_TOKENS = 25.0  # a second and request: eager decode of a model of some billion parameters stays below
_EAGER_TOKENS = 60.0  # the same where the device is seen to idle meanwhile
_SMALL_BATCH = 32.0
# Requests at a constant number: smaller ones are a person, or chosen as often as they are a client library's limit.
_FEW = 16.0
_SAME = 0.03  # between the batch and the concurrency that a load test was told
_IDLE = 0.6
# What holds an engine back on its own side, so that more requests in flight would not help.
_SIGNS = (
    ("serving.slowdown", 1.5),
    ("serving.falls_with_load", 1.5),
    ("cpu.frontend_cores", 0.85),
    ("cpu.throttled_share", 0.2),
    ("serving.prefill_ratio", 15.0),
    ("cpu.tokenizer_share", 0.4),
    ("cpu.load_per_core", 1.5),
)
_LOGPROBS = lazy(r"(?i)prompt_?logprobs|get_token_logprobs|log_softmax|compute_logprobs|input_logprobs")
_PREPROCESS = lazy(r"(?i)process_mm_data|image_process|_preprocess\b|multimodal_processor|process_images|mm_processor")
_TRAINING = lazy(r"(?i)training_step|backward|optimizer_step|\btrain\b")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
    if not events and not facts:
        return
    yield from _step(events, facts, system)
    full, place = _device_full(facts)
    yield Fact("serving.device_full", full, "derived", place)
    yield from _load(events, facts, full)
    running = fact(facts, "slots.most_busy") or fact(facts, "serving.running_median")
    if running is None and fact(facts, "access.beyond"):
        running = fact(facts, "max_num_seqs")
    if running is not None:
        yield Fact("batch.running", running, "derived")
    front, engine = fact(facts, "cpu.frontend_cores"), fact(facts, "cpu.engine_cores")
    yield Fact("cpu.frontend_first", front is not None and front >= 1.2 * (engine or 0.0), "derived")
    yield Fact("cpu.engine_waits", _engine_waits(facts, front, engine, full), "derived")
    tokenizer, rest = fact(facts, "cpu.tokenizer_share"), fact(facts, "cpu.frontend_share")
    yield Fact("cpu.tokenizer_first", tokenizer is not None and tokenizer >= 0.5 * (rest or 0.0), "derived")


def _step(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterator[Fact]:
    """Whether the first refusal while serving is the fault of one step, and of which kind."""
    first = next((event for event in events if event.name == "cuda_oom"), None)
    if first is None:
        return
    near = [event for event in events if event.name == "traceback" and event.source == first.source]
    words = " ".join(str(event.fields.get(name, "")) for event in (first, *near) for name in ("functions", "file"))
    logprobs, images = bool(_LOGPROBS.search(words)), bool(_PREPROCESS.search(words))
    yield Fact("oom.logprobs", logprobs, "derived", first.source)
    yield Fact("oom.preprocessing", images, "derived", first.source)
    want, total = fact(facts, "oom.want_bytes"), fact(facts, "oom.total_bytes")
    large = want is not None and want >= min(_LARGE_BYTES, _LARGE_SHARE * total if total else _LARGE_BYTES)
    share, free = fact(facts, "gpu_memory_utilization"), fact(facts, "oom.free_bytes")
    multimodal = "oom.multimodal" in facts and facts["oom.multimodal"].value is True
    special = logprobs or images or multimodal or system is None or bool(_TRAINING.search(words))
    roomy = share is not None and share < _ROOMY
    unsized = want is None and (free is None or str(first.fields.get("batch", "")).lower().startswith("prefill"))
    if share is not None and share >= _TIGHT and want is not None and total:
        # A share as engines choose it would have left room for this very step.
        large = large and want > (share - _USUAL) * total + (free or 0.0)
    yield Fact("oom.large_step", large or special or roomy or unsized, "derived", first.source)


def _engine_waits(facts: Mapping[str, Fact], front: float | None, engine: float | None, full: bool) -> bool:
    """No queue and no full device; seen on the engine's lines, on the device, or on its process beside the front."""
    if full or _true(facts, "serving.queued"):
        return False
    device = any(fact(facts, name) is not None for name in ("gpu.utilization", "gpu.utilization_median"))
    idle = engine is not None and front is not None and engine <= _IDLE * front
    return "serving.queued" in facts or device or idle


def _device_full(facts: Mapping[str, Fact]) -> tuple[bool, str | None]:
    for name in ("gpu.utilization", "gpu.utilization_median", "metrics.gpu_utilization_ratio"):
        value = fact(facts, name)
        if value is not None:
            return value >= _BUSY, facts[name].source
    return False, None


def share_of_device(facts: Mapping[str, Fact]) -> float | None:
    """The utilization of the busiest device as a ratio; None where nothing says it."""
    return fact(facts, "gpu.utilization") or fact(facts, "gpu.utilization_median")


def _on_cpu(facts: Mapping[str, Fact]) -> bool:
    device, version = facts.get("target.device"), facts.get("target.version")
    return (device is not None and str(device.value).lower() == "cpu") or (
        version is not None and "cpu" in str(version.value)
    )


def _load(events: Sequence[Event], facts: Mapping[str, Fact], full: bool) -> Iterator[Fact]:
    busy = [sample for sample in samples(events, facts) if sample.busy]
    if not busy:
        yield from _by_requests(events, facts)
        return
    place = busy[-1].event.source
    queue = [s for s in busy if (s.waiting or 0) > 0]
    pinned = len(queue) >= 4 and max(s.running for s in queue) <= 1.01 * min(s.running for s in queue)
    # A batch that prompts alone hold up stands still as well; there the limit is compute.
    pinned = pinned and not _over(facts, "serving.prefill_ratio", 20)
    pinned = pinned and queue[0].running >= 2 and len(queue) >= 0.6 * len(busy) and not _true(facts, "serving.draining")
    yield Fact("serving.pinned_queue", pinned, "derived", place)
    bound = _true(facts, "serving.queued") and _over(facts, "serving.prefill_ratio", 20)
    bound = bound and not _over(facts, "serving.kv_max", 0.8) and not _true(facts, "preempt.some")
    bound = bound and not _true(facts, "serving.at_limit") and not _over(facts, "serving.prefill_stalls", 2)
    yield Fact("serving.prompt_bound", bound, "derived", place)
    moves = [s for s in busy if (s.generated or 0) > 0 or (s.prompt or 0) > 0]
    unknown = all(s.generated is None and s.prompt is None for s in busy)
    still = "serving.still" in facts or "serving.still_pages" in facts
    yield Fact("serving.moves", (bool(moves) or unknown) and not still, "derived", place)
    starved = full or any(_over(facts, name, least) for name, least in _SIGNS)
    speeds = [s.generated / s.running for s in busy if s.generated and s.running > 0]
    batch = median(s.running for s in busy)
    slow = len(speeds) >= 3 and median(speeds) < (_SLOW_TOKENS if batch <= _SMALL_BATCH else _SLOW_TOKENS / 3)
    slow = slow and batch <= 4 * _SMALL_BATCH
    slow = slow and not _over(facts, "serving.prefill_ratio", 5)
    slow = slow and not _on_cpu(facts)  # no graphs exist there, and a slow decode is what it does
    idle = share_of_device(facts)
    eager = _true(facts, "enforce_eager") and idle is not None and idle < _IDLE and batch <= _SMALL_BATCH
    slow = slow or (
        eager and len(speeds) >= 3 and median(speeds) < _EAGER_TOKENS and not _over(facts, "serving.prefill_ratio", 5)
    )
    # A single page has no rates, but the usual gap between the tokens of a stream.
    gap = fact(facts, "metrics.llm_inter_token_latency_seconds.p50")
    slow = slow or (eager and not speeds and gap is not None and gap > 1 / _EAGER_TOKENS)
    slow = slow or (_over(facts, "bench.token_seconds", 1 / _SLOW_TOKENS) and batch <= _SMALL_BATCH)
    yield Fact("serving.slow_decode", slow, "derived", place)
    starved = starved or (slow and _true(facts, "enforce_eager")) or _true(facts, "growth.leaks")
    yield Fact("serving.starved_engine", starved, "derived", place)
    share = fact(facts, "gpu.utilization")
    few = batch >= _FEW or (batch >= 2 and share is not None and share < _IDLE)
    chosen = _chosen(events, facts, batch)
    yield Fact("serving.load_chosen", chosen is not None, "derived", chosen)
    few = few and chosen is None
    yield Fact("serving.few_steady", _true(facts, "serving.steady") and few, "derived", place)
    yield Fact("serving.eager_costs", _eager_costs(events), "derived", place)


def _by_requests(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """serving.slow_decode where the server prints requests instead of its state (TGI)."""
    rows = [event for event in events if event.name == "request_finished"]
    times = [value for event in rows if (value := number(event.fields.get("seconds_per_token")))]
    if len(times) >= 3:
        idle = share_of_device(facts)
        eager = _true(facts, "enforce_eager") and idle is not None and idle < _IDLE
        slow = median(times) > 1 / (_EAGER_TOKENS if eager else _SLOW_TOKENS) and not _on_cpu(facts)
        yield Fact("serving.slow_decode", slow, "derived", rows[-1].source)


def _chosen(events: Sequence[Event], facts: Mapping[str, Fact], batch: float) -> str | None:
    """Where a load test says that it was told to keep as many in flight as there were; None where none does."""
    told = [
        (asked, event.source)
        for event in events
        if event.name == "bench_result" and (asked := number(event.fields.get("concurrency")))
    ]
    asked = fact(facts, "client.concurrency")
    if asked and "client.requests" in facts:  # a generator's command has a count of requests beside it
        told.append((asked, facts["client.concurrency"].source))
    return next((source or "" for asked, source in told if abs(asked - batch) <= _SAME * asked), None)


def _eager_costs(events: Sequence[Event]) -> bool:
    """Whether a token takes longer on the lines without a graph than on those with one; true where none has one."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for event in events:
        graph, rate = event.fields.get("graph"), number(event.fields.get("generation_rate"))
        running = number(event.fields.get("running"))
        if event.name == "stats_line" and isinstance(graph, bool) and rate and running:
            times[graph].append(running / rate)
    if not times[False]:
        return False
    return not times[True] or median(times[False]) > 1.3 * median(times[True])


def _over(facts: Mapping[str, Fact], name: str, least: float) -> bool:
    return (fact(facts, name) or 0.0) >= least


def _true(facts: Mapping[str, Fact], name: str) -> bool:
    return name in facts and facts[name].value is True
