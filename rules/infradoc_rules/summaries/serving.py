"""How a server fared while it had work: medians over its statistics lines, never a single line.

Facts (stated when there is a line with work, unless marked ?): serving.samples, serving.running_median,
serving.running_max, serving.waiting_median, serving.waiting_last, serving.kv_median?, serving.kv_max?,
serving.prompt_rate?, serving.generation_rate?, serving.prefill_ratio? (prompt tokens for each generated one),
serving.limit? (max_num_seqs, given or the engine's default), serving.limit_share?, serving.at_limit,
serving.places_taken (the same, where nothing is said of KV and as many wait as run),
serving.queued (a queue that stays), serving.draining, serving.steady (a constant batch that turns over),
serving.stalled, serving.chunk? (the step budget as prefill lines show it), serving.kv_full, serving.pool_bound (a
handful of requests fill the pool while others wait), serving.prefill_stalls, serving.slowdown, serving.falls_with_load,
serving.prompt_size?, serving.eager_share?, serving.tail_share?, serving.prefix_hit?, serving.prefix_off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import prefills
from infradoc_rules.summaries.load import Sample, fact, middle, samples
from infradoc_rules.values import number

_DEFAULT_SEQS = {"vllm": 256.0, "tgi": None, "lmdeploy": 128.0, "trtllm": 2048.0}
_LIMIT = 0.98  # of max_num_seqs: a request that has just ended leaves its place for a moment
_MOST = 0.6  # of the lines: what holds for them holds for the server
_DRAINED = 0.75  # of the longest queue: below it at the end, the queue is work that gets done
_KV_FULL = 0.97
_QUEUE = 10.0  # requests; a queue below it is a moment's
_FAR = 150.0  # seconds between lines: those of a log that was thinned say nothing on what was between
_HANDFUL = 4.0  # requests that fill a pool: one more of their size does not fit, and whoever waits, waits for that
_FEW = 16.0  # the same, where half as many wait


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """All facts on the load."""
    found = samples(events, facts)
    busy = [sample for sample in found if sample.busy]
    if not busy:
        return
    yield from _middles(busy, facts, events)
    yield from _limits(busy, facts, system)
    yield from _queue(busy)
    yield from _rates(busy, found, events)
    yield from _graphs(events)
    yield from _blocks(busy, facts)
    yield from _prefixes(events, facts)


def _fact(name: str, value: float | bool | str, sample: Sample | None = None) -> Fact:
    return Fact(f"serving.{name}", value, "derived", sample.event.source if sample else None)


def _middles(busy: Sequence[Sample], facts: Mapping[str, Fact], events: Sequence[Event]) -> Iterator[Fact]:
    last = busy[-1]
    yield _fact("samples", len(busy), last)
    yield _fact("running_median", median(sample.running for sample in busy), last)
    yield _fact("running_max", max(sample.running for sample in busy), last)
    waiting = [sample.waiting or 0.0 for sample in busy]
    yield _fact("waiting_median", median(waiting), last)
    yield _fact("waiting_last", waiting[-1], last)
    usage = [sample.kv for sample in busy if sample.kv is not None]
    if usage:
        yield _fact("kv_median", median(usage), last)
        yield _fact("kv_max", max(usage), last)
    prompt, made = middle([s.prompt for s in busy]), middle([s.generated for s in busy])
    prompt = prefills.prefilled(events) if prompt is None else prompt
    if prompt is not None:
        yield _fact("prompt_rate", prompt, last)
    if made is not None:
        yield _fact("generation_rate", made, last)
    ratio = _ratio(prompt, made, facts)
    ratio = prefills.prompts_only(busy, events) if ratio is None else ratio
    if ratio is not None:
        yield _fact("prefill_ratio", ratio, last)


def _ratio(prompt: float | None, made: float | None, facts: Mapping[str, Fact]) -> float | None:
    """Prompt tokens for each generated one: from lengths of finished requests, else from rates, else from totals."""
    means = [fact(facts, f"metrics.llm_request_{part}_tokens.mean") for part in ("prompt", "output")]
    if means[0] and means[1]:
        return means[0] / means[1]
    if prompt is not None and made is not None and prompt > 0:
        return prompt / max(made, 1.0)
    totals = [fact(facts, f"metrics.llm_{part}_tokens_total") for part in ("prompt", "generation")]
    return totals[0] / max(totals[1], 1.0) if totals[0] and totals[1] is not None else None


def _limits(busy: Sequence[Sample], facts: Mapping[str, Fact], system: str | None) -> Iterator[Fact]:
    top = max(sample.running for sample in busy)
    limit = seqs_limit(facts, system, top)
    at = False
    if limit:
        yield _fact("limit", limit)
        yield _fact("limit_share", top / limit)
        full = [s for s in busy if s.running >= _LIMIT * limit and (s.waiting or 0) > 0]
        at = len(full) >= _MOST * len(busy) and max(s.running for s in busy) <= 1.02 * limit
    yield _fact("at_limit", at, busy[-1])
    behind = all(sample.kv is None and (sample.waiting or 0) >= sample.running for sample in busy)
    yield _fact("places_taken", at and behind, busy[-1])


def seqs_limit(facts: Mapping[str, Fact], system: str | None, seen: float) -> float | None:
    """max_num_seqs as given, else the engine's default; None when it is not known or was passed."""
    for name in ("max_num_seqs", "default.max_num_seqs"):
        given = fact(facts, name)
        if given:
            return given
    usual = _DEFAULT_SEQS.get(system or "")
    if usual is None:
        return None
    return usual if seen <= usual else 1024.0 if system == "vllm" and seen <= 1024 else None


def _queue(busy: Sequence[Sample]) -> Iterator[Fact]:
    waiting = [sample.waiting or 0.0 for sample in busy]
    top, last = max(waiting), waiting[-1]
    inside = [sample.running + (sample.waiting or 0.0) for sample in busy]  # a queue that moves into the batch stays
    draining = len(busy) >= 3 and top > 0 and last <= _DRAINED * top and inside[-1] <= _DRAINED * max(inside)
    yield _fact("draining", draining, busy[-1])
    running = median(sample.running for sample in busy)
    held = sum(1 for count in waiting if count >= max(_QUEUE, 0.3 * running))
    enough = held >= 3 or (len(busy) <= 2 and last >= max(3 * _QUEUE, running))
    yield _fact("queued", enough and held >= _MOST * len(busy) and not draining, busy[-1])
    yield _fact("pool_bound", sum(map(_tight, busy)) >= max(3, _MOST * len(busy)), busy[-1])
    usage = [sample.kv for sample in busy if sample.kv is not None]
    full = sum(1 for share in usage if share >= _KV_FULL)
    yield _fact("kv_full", bool(usage) and full >= max(1, 0.5 * len(usage)), busy[-1])


def _tight(sample: Sample) -> bool:
    """Whether one more request of the usual size does not fit into the pool, and others wait for that."""
    if not 0 < sample.running <= _FEW or not sample.waiting or (sample.kv or 0) < sample.running / (sample.running + 1):
        return False
    return sample.running <= _HANDFUL or sample.waiting >= 0.5 * sample.running


def _rates(busy: Sequence[Sample], found: Sequence[Sample], events: Sequence[Event]) -> Iterator[Fact]:
    running = [sample for sample in busy if sample.running > 0]
    counts = {sample.running for sample in running}
    fed = [sample for sample in running if sample.prompt is None or sample.prompt > 0]
    steady = len(running) >= 4 and len(counts) == 1 and len(fed) == len(running) == len(busy)
    steady = steady and all(not sample.waiting for sample in busy) and _gap(running) <= _FAR
    turns = running and (running[0].prompt is not None or _turns(running))
    yield _fact("steady", bool(steady and turns), busy[-1])
    yield _fact("stalled", _stalled(found), busy[-1])
    stalls = prefills.stalls(running) or prefills.starved_decodes(running, events)
    yield _fact("prefill_stalls", len(stalls), stalls[0] if stalls else None)
    chunk = prefills.chunk(events)
    if chunk is not None:
        yield _fact("chunk", chunk)
    size = prefills.prompt_size(events)
    if size is not None:
        yield _fact("prompt_size", size)
    yield _fact("slowdown", _slowdown(running), running[-1] if running else None)
    yield _fact("falls_with_load", _falls(running), running[-1] if running else None)
    yield _fact("recomputes", _recomputes(running), running[-1] if running else None)


def _turns(running: Sequence[Sample]) -> bool:
    """Whether requests end and begin under a constant number: the tokens held fall again and again (SGLang)."""
    held = [number(sample.event.fields.get("used_tokens")) for sample in running]
    known = [tokens for tokens in held if tokens is not None]
    return sum(1 for before, after in pairwise(known) if after < before) >= 2


def _gap(running: Sequence[Sample]) -> float:
    """The usual distance of lines in seconds; 0 where they have no times."""
    times = [sample.event.time for sample in running if sample.event.time is not None]
    return median(later - earlier for earlier, later in pairwise(times)) if len(times) >= 2 else 0.0


def _stalled(found: Sequence[Sample]) -> bool:
    """Whether the last lines show requests, three lines long that run or five that only wait, and no token moves."""
    count, running = 0, 0
    for sample in reversed(found):
        if not sample.busy or sample.generated is None or sample.generated > 0 or (sample.prompt or 0) > 0:
            break
        count += 1
        running += sample.running > 0
    return running >= 3 or count >= 5


def _slowdown(running: Sequence[Sample]) -> float:
    """How many times slower the same number of requests runs in the later half than in the earlier; 1 for not."""
    known = [s for s in running if s.generated]
    if len(known) < 4:
        return 1.0
    cut = _cut(known)
    before, after = known[:cut], known[cut:]
    size = [median(s.running for s in part) for part in (before, after)]
    if not 0.8 <= size[1] / size[0] <= 1.25 or any((s.waiting or 0) > 0 for s in known):
        return 1.0
    rates = [median(s.generated or 0.0 for s in part) for part in (before, after)]
    prompts = [median(s.prompt or 0.0 for s in part) for part in (before, after)]
    if prompts[1] > 1.5 * prompts[0]:
        return 1.0  # more prompt work explains it
    return max(rates[0] / rates[1], 1.0)


def _cut(known: Sequence[Sample]) -> int:
    """Where the generation rate falls most, with two lines or more on either side."""
    rates = [s.generated or 0.0 for s in known]
    places = range(2, len(rates) - 1)
    return max(places, key=lambda at: median(rates[:at]) / max(median(rates[at:]), 1e-9))


def _falls(running: Sequence[Sample]) -> float:
    """How many times less all requests together generate when there are more of them; 1 for not less."""
    known = [s for s in running if s.generated and (s.prompt or 0) <= 20 * s.generated]
    if len(known) < 4:
        return 1.0
    half = median(s.running for s in known)
    few = [s for s in known if s.running <= 0.7 * half]
    many = [s for s in known if s.running >= half]
    if not few or len(many) < 3:
        return 1.0
    best = max(s.generated or 0.0 for s in few)
    return max(best / max(median(s.generated or 0.0 for s in many), 1e-9), 1.0)


def _recomputes(running: Sequence[Sample]) -> bool:
    """A full pool under which prompts are computed without end while ever less is generated."""
    full = [s for s in running if (s.kv or 0) >= _KV_FULL and s.generated is not None and s.prompt is not None]
    best = max((s.generated or 0.0 for s in running), default=0.0)
    top = max((s.prompt or 0.0 for s in running), default=0.0)
    low = [
        s
        for s in full
        if (s.generated or 0) <= 0.4 * best and (s.prompt or 0) >= max(0.6 * top, 20 * (s.generated or 0))
    ]
    return len(low) >= 3


def _graphs(events: Sequence[Event]) -> Iterator[Fact]:
    """The share of decode lines, of a moderate batch or more, that ran without a graph."""
    said = [e for e in events if e.name == "stats_line" and isinstance(e.fields.get("graph"), bool)]
    if not said:
        return
    eager = [event for event in said if event.fields["graph"] is False]
    place = eager[0].source if eager else None
    yield Fact("serving.eager_share", len(eager) / len(said), "derived", place)
    yield Fact("serving.eager_lines", len(eager), "derived", place)
    if eager:
        least = min(number(event.fields.get("running")) or 0.0 for event in eager)
        yield Fact("serving.eager_from", least, "derived", place)


def _blocks(busy: Sequence[Sample], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """serving.tail_share: what the last blocks of all requests waste of the pool, half a block each."""
    size = fact(facts, "block_size") or fact(facts, "metrics.llm_kv_block_size_tokens")
    if not size or size <= 1:
        return
    means = [fact(facts, f"metrics.llm_request_{part}_tokens.mean") for part in ("prompt", "output")]
    length = (means[0] or 0.0) + (means[1] or 0.0) if means[0] else None
    pool, usage = fact(facts, "kv_pool_tokens"), middle([sample.kv for sample in busy])
    running = median(sample.running for sample in busy)
    if length is None and pool and usage and running:
        length = pool * usage / running - size / 2  # blocks are whole: half of the last one is empty
    if length is not None and length > 0:
        yield _fact("tail_share", (size / 2) / (length + size / 2), busy[-1])
        yield _fact("length_mean", length, busy[-1])


def _prefixes(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """serving.prefix_off: switched off on purpose; serving.prefix_hit: median of what the lines say."""
    off = facts.get("prefix_caching")
    yield _fact("prefix_off", off is not None and off.value is False and off.origin == "flag")
    hits = [number(e.fields.get("prefix_hit")) for e in events if e.name == "stats_line"]
    cached = [
        (number(e.fields.get("cached_tokens")), number(e.fields.get("prefill_tokens")))
        for e in events
        if e.name == "step_line"
    ]
    known = middle(hits)
    total = sum((new or 0) + (old or 0) for old, new in cached)
    if known is None and total > 0 and any(old is not None for old, _ in cached):
        known = sum(old or 0 for old, _ in cached) / total
    queries, found = (fact(facts, f"metrics.llm_prefix_cache_{part}_tokens_total") for part in ("queried", "hit"))
    if known is None and queries and found is not None:
        known = found / queries
    if known is not None:
        yield _fact("prefix_hit", known)
