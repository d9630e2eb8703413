"""The window (max_model_len) against what is served, as facts:

length.window?          the limit in force, in tokens
length.longest?         the longest request seen (prompt + output)
length.oversized?       window over the longest request, of at least LEAST_REQUESTS requests or a mean of many
length.room?            requests of the full window that fit at once
length.squeezed         the context takes memory that layers need: some run on the CPU
length.pressed          requests wanted more room than the window left
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns.sizes import number_of as number_from
from infradoc_rules.values import number

LEAST_REQUESTS = 5  # below it the longest one says nothing on the others
_FEW, _FAR = 3, 16.0  # unless the window is so many times the longest of so many
_ONE, _FARTHER = 1, 64.0
_MUCH = 2 << 30  # bytes of a context that a layer's worth of weights does not come near
_SPREAD = 3.0  # the longest over the mean, where only that is known
_FULL = 0.9  # of the KV pool
_FEW_SEQS = 8  # a batch limit so low was chosen for requests of the full window


def oversized(by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact], system: str | None) -> Iterator[Fact]:
    """All facts on the window."""
    window = window_of(by_name, facts)
    longest = _longest(by_name, facts, window)
    pressed = _pressed(by_name, facts, system)
    yield Fact("length.pressed", pressed is not None, "derived", pressed.source if pressed else None)
    if window:
        yield Fact("length.window", round(window), "derived")
    if longest:
        yield Fact("length.longest", round(longest), "derived")
    if window and longest:
        yield Fact("length.oversized", window / longest, "derived")
    yield Fact("length.squeezed", _squeezed(by_name, facts), "derived", _source(by_name, "layers_placed"))
    room = _room(by_name, facts, window, system)
    if room is not None:
        yield Fact("length.room", room, "derived")


def window_of(by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact]) -> float | None:
    """The limit in force, in tokens: as configured, else as the engine says at its start."""
    fact = facts.get("max_model_len")
    if fact is not None and isinstance(fact.value, int | float) and fact.value > 0:
        return float(fact.value)
    for event in reversed(by_name.get("kv_allocated", [])):
        if (limit := number_of(event, "max_model_len")) is not None:
            return limit
    return None


def _longest(by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact], window: float | None) -> float | None:
    """The longest request, of at least LEAST_REQUESTS; three times the mean where only that is known."""
    totals = [total for e in by_name.get("request_finished", ()) if (total := total_of(e)) is not None]
    slots = [tokens for e in by_name.get("slot_released", ()) if (tokens := number_of(e, "tokens")) is not None]
    for seen in (totals, slots):
        for least, times in ((LEAST_REQUESTS, 0.0), (_FEW, _FAR), (_ONE, _FARTHER)):
            if len(seen) >= least and (times == 0.0 or (window is not None and window >= times * max(seen))):
                return max(seen)
    for event in by_name.get("bench_result", ()):
        lengths = [number_of(event, name) for name in ("prompt_tokens", "output_tokens")]
        known = [length for length in lengths if length is not None]
        if (number_of(event, "requests") or 0) >= LEAST_REQUESTS and len(known) == 2:
            return _SPREAD * sum(known)
    mean = [facts.get(f"metrics.llm_request_{part}_tokens.mean") for part in ("prompt", "output")]
    values = [fact.value for fact in mean if fact is not None and isinstance(fact.value, int | float)]
    return _SPREAD * sum(values) if len(values) == 2 and sum(values) > 0 else None


def _squeezed(by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact]) -> bool:
    """Whether layers are left on the CPU beside a large context on the device."""
    places = by_name.get("layers_placed", [])
    if not places or (number_of(places[-1], "placed") or 0) >= (number_of(places[-1], "layers") or 0):
        return False
    held = [size for e in by_name.get("kv_allocated", ()) if (size := number_of(e, "bytes")) is not None]
    buffers = [e for e in by_name.get("memory_buffer", ()) if str(e.fields.get("what")) == "KV"]
    held.append(sum(number_of(e, "bytes") or 0.0 for e in buffers if str(e.fields.get("device")) != "CPU"))
    named = facts.get("window.kv_bytes")
    return max([*held, number_from(str(named.value)) if named is not None else 0.0]) >= _MUCH


def _source(by_name: Mapping[str, list[Event]], name: str) -> str | None:
    found = by_name.get(name)
    return found[-1].source if found else None


def _pressed(by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact], system: str | None) -> Event | None:
    """The first sign that requests wanted more room than the window left.

    A shared pool that short requests fill, or a batch limit that they reach, is another cause: a shorter window would
    not help there.
    """
    lines: list[Event] = [*by_name.get("stats_line", ()), *by_name.get("step_line", ())]
    waiting = [event for event in lines if (number_of(event, "waiting") or 0) >= 1]
    usage = [used for event in waiting if (used := number_of(event, "kv_usage")) is not None]
    if usage and median(usage) >= _FULL:
        return None
    limit = facts.get("max_num_seqs")
    most = float(limit.value) if limit is not None and isinstance(limit.value, int | float) else None
    running = [number for event in waiting if (number := number_of(event, "running")) is not None]
    own = system in ("llamacpp", "ollama") or (most is not None and most <= _FEW_SEQS)
    if most and running and not own and median(running) >= 0.95 * most:
        return None
    if len(waiting) >= 2:
        return waiting[0]
    signs = ("preempted", "slot_unavailable", "kv_full", "swap_exhausted")
    return next((event for name in signs for event in by_name.get(name, ())), None)


def _room(
    by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact], window: float | None, system: str | None
) -> float | None:
    """Requests of the full window that fit at once: as the engine says, pool over window, or slots."""
    said = [room for e in by_name.get("kv_allocated", ()) if (room := number_of(e, "concurrency")) is not None]
    if said:
        return said[-1]
    pool = facts.get("kv_pool_tokens")
    if window and pool is not None and isinstance(pool.value, int | float) and pool.value > 0:
        return float(pool.value) / window
    slots = facts.get("max_num_seqs")
    if system in ("llamacpp", "ollama") and slots is not None and isinstance(slots.value, int | float):
        return float(slots.value)
    return None


def total_of(event: Event) -> float | None:
    """Prompt and output tokens together; None where one is not known."""
    prompt, output = number_of(event, "prompt_tokens"), number_of(event, "output_tokens")
    return None if prompt is None or output is None else prompt + output


def number_of(event: Event, name: str) -> float | None:
    """A field as a number."""
    return number(event.fields.get(name))


def fact_of(facts: Mapping[str, Fact], name: str) -> float | None:
    """A fact as a number."""
    fact = facts.get(name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None
