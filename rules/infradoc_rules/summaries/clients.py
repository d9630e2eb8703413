"""What clients saw: results of load generators, gaps in streams, times of single requests.

Facts: client.shares_prefixes, bench.ttft?, bench.served_share?, bench.mode_slowdown (a kind of request against another
at the same concurrency), bench.token_seconds?, gaps.stalls, gaps.longest?, gaps.prompts, request.validation_share?,
request.validation_seconds?, request.queue_share?, ttft.outside_seconds?, ttft.outside_share? (of metrics pages).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact
from infradoc_rules.values import number

_LONG_PROMPT = 2_000  # tokens: below it a prefill is over before a reader sees a gap
_STREAMS = 4  # requests at once from which a slowdown is one of concurrency
_ALIKE = 1.5  # at one request at a time both kinds take about as long


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
    runs = [event for event in events if event.name == "bench_result"]
    shared = facts.get("client.shared_prefix")
    told = any((number(event.fields.get("shared_prefix")) or 0) > 0 for event in runs)
    yield Fact("client.shares_prefixes", told or (shared is not None and shared.value is True), "derived")
    yield from _bench(runs, facts)
    yield from _gaps(runs, events, facts)
    yield from _requests(events)
    yield from _outside(facts)


def _bench(runs: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    first = [(event, value) for event in runs if (value := _any(event, "ttft_median", "ttft_mean")) is not None]
    if first:
        event, value = max(first, key=lambda pair: pair[1])
        yield Fact("bench.ttft", value, "derived", event.source)
    token = [
        (event, value) for event in runs if (value := _any(event, "tpot_median", "tpot_mean", "itl_median")) is not None
    ]
    if token:
        event, value = min(token, key=lambda pair: pair[1])
        yield Fact("bench.token_seconds", value, "derived", event.source)
    for event in runs:
        offered = number(event.fields.get("offered_rate")) or fact(facts, "client.request_rate")
        served = number(event.fields.get("request_rate"))
        if offered and served:
            yield Fact("bench.served_share", served / offered, "derived", event.source)
            break
    yield Fact("bench.mode_slowdown", _modes(runs), "derived", runs[0].source if runs else None)


def _modes(runs: Sequence[Event]) -> float:
    """How many times slower the slowest labelled kind is at one concurrency; 1 where single requests differ as much."""
    groups: dict[float, dict[str, float]] = defaultdict(dict)
    for event in runs:
        label, streams = str(event.fields.get("label", "")), number(event.fields.get("concurrency"))
        took = _any(event, "latency_median", "latency_mean", "tpot_median", "tpot_mean")
        if label and streams and took:
            groups[streams][label] = took
    ratios = {
        streams: max(kinds.values()) / min(kinds.values()) for streams, kinds in groups.items() if len(kinds) >= 2
    }
    many = max((ratio for streams, ratio in ratios.items() if streams >= _STREAMS), default=1.0)
    single = min((ratio for streams, ratio in ratios.items() if streams < _STREAMS), default=1.0)
    return many if single <= _ALIKE else 1.0


def _gaps(runs: Sequence[Event], events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """Gaps between tokens far above the usual one, and whether long prompts were computed at that time."""
    worst: tuple[Event, float] | None = None
    for event in runs:
        usual = _any(event, "itl_median", "tpot_median", "tpot_mean")
        for name, times, least in (("itl_max", 20, 1.0), ("itl_p99", 10, 0.5)):
            gap = number(event.fields.get(name))
            if usual and gap is not None and gap >= max(times * usual, least) and (worst is None or gap > worst[1]):
                worst = (event, gap)
    usual, gap = (fact(facts, f"metrics.llm_inter_token_latency_seconds.{end}") for end in ("p50", "p99"))
    counted = usual is not None and gap is not None and gap >= max(10 * usual, 0.5)
    place = facts["metrics.llm_inter_token_latency_seconds.p99"].source if counted else None
    place = worst[0].source if worst else place
    yield Fact("gaps.stalls", worst is not None or counted, "derived", place)
    if worst is not None or counted:
        yield Fact("gaps.longest", worst[1] if worst is not None else gap or 0.0, "derived", place)
    long = [event for event in events if _prompt_tokens(event) >= _LONG_PROMPT]
    mixed = facts.get("client.mixed_lengths")
    told = mixed is not None and mixed.value is True
    told = told or (fact(facts, "metrics.llm_request_prompt_tokens.mean") or 0.0) >= _LONG_PROMPT
    yield Fact("gaps.prompts", bool(long) or told, "derived", long[0].source if long else None)


def _prompt_tokens(event: Event) -> float:
    if event.name == "step_line":
        return number(event.fields.get("prefill_tokens")) or 0.0
    if event.name == "slot_started" or event.name == "bench_result":
        return _any(event, "tokens", "prompt_tokens") or 0.0
    if event.name == "request_finished":
        phase = str(event.fields.get("phase", ""))
        own = number(event.fields.get("prompt_tokens")) or 0.0
        return max(own, number(event.fields.get("output_tokens")) or 0.0) if phase.startswith("prompt") else own
    return 0.0


def _requests(events: Sequence[Event]) -> Iterator[Fact]:
    """Medians over finished requests that say where their time went."""
    rows = [event for event in events if event.name == "request_finished" and number(event.fields.get("total_seconds"))]
    for part in ("validation", "queue"):
        known = [
            (number(event.fields[f"{part}_seconds"]) or 0.0, number(event.fields["total_seconds"]) or 1.0, event)
            for event in rows
            if f"{part}_seconds" in event.fields
        ]
        if known:
            place = known[-1][2].source
            yield Fact(f"request.{part}_share", median(took / total for took, total, _ in known), "derived", place)
            yield Fact(f"request.{part}_seconds", median(took for took, _, _ in known), "derived", place)


def _outside(facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """How much of the time to the first token the engine does not know of: neither its queue nor its prefill."""
    first = fact(facts, "metrics.llm_time_to_first_token_seconds.mean")
    stages = []
    for stage in ("queue", "prefill"):
        total, count = (fact(facts, f"metrics.llm_request_stage_seconds_{end}.{stage}") for end in ("sum", "count"))
        stages.append(total / count if total is not None and count else None)
    inside = sum(stage for stage in stages if stage is not None)
    if first and None not in stages:
        place = facts["metrics.llm_time_to_first_token_seconds.mean"].source
        yield Fact("ttft.outside_seconds", max(first - inside, 0.0), "derived", place)
        yield Fact("ttft.outside_share", max(first - inside, 0.0) / first, "derived", place)


def _any(event: Event, *names: str) -> float | None:
    return next((value for name in names if (value := number(event.fields.get(name))) is not None), None)
