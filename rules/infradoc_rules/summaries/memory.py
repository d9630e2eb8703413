"""Device memory: the first refused allocation and its echoes, what others hold, and what is left for KV.

Facts: oom.* (of the last attempt), gpu.other_bytes, gpu.other_share, gpu.shared, kv.*; see each function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.summaries.holders import other_bytes
from infradoc_rules.summaries.start import attempts, first_served

_NUMBERS = (
    "gpu",
    "want_bytes",
    "free_bytes",
    "total_bytes",
    "allocated_bytes",
    "reserved_unallocated_bytes",
    "private_pool_bytes",
    "process_bytes",
    "dummy_requests",
)
_SHARED = 0.05  # of the device; a display or a monitoring agent holds less
_FRAGMENTED = 2.0  # times the request held but not allocated: there was room, only not in one piece
_FRAGMENTED_SHARE = 0.03  # of the device
_MOSTLY = 0.6  # of the device
# Functions and files of a model's image, video and audio parts, as vLLM, SGLang and transformers name them.
_MM_WORDS = (
    "image",
    "vision",
    "visual",
    "video",
    "audio",
    "multimodal",
    "multi_modal",
    "mm_encoder",
    "profile_encoder",
)
_MM_FILES = lazy(r"(?:vl|vision\w*|siglip\w*|clip|vit|pixtral|image_\w+|whisper)\.py$")
_WAKES = lazy(r"\b(?:wake_up|resume_memory_occupation|resume_from_sleep)\b")
_FIRST_TOUCH = ("init_device", "set_device", "_lazy_init", "mem_get_info", "init_torch_distributed")
# Innermost first: the sampler and the graphs run inside calls that the later rows name.
_FRAME_PHASES = (
    ("_dummy_sampler_run", "sampler_warmup"),
    ("_dummy_pooler_run", "sampler_warmup"),
    ("capture_model", "graph_capture"),
    ("capture_begin", "graph_capture"),
    ("capture_end", "graph_capture"),
    ("profile_cudagraph_memory", "graph_capture"),
    ("_allocate_kv_cache", "kv_allocate"),
    ("allocate_kv_cache", "kv_allocate"),
    ("initialize_kv_cache", "kv_allocate"),
    ("profile_run", "profile"),
    ("determine_", "profile"),
    ("load_model", "load_weights"),
    ("create_weights", "load_weights"),
)
_NEAR = 60  # events; a traceback of vLLM has twenty frames
_TEXT_STEP = ("_dummy_run", "compute_logits", "lm_head")  # the profile has gone on to the language model


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """All facts on memory."""
    if not events:
        return
    run = attempts(events)[-1]
    yield from _refused(run)
    yield from _kv(run)
    yield from _others(events, run, facts)


def _refused(run: Sequence[Event]) -> Iterator[Fact]:
    """oom.count; oom.count_distinct (the same size refused on each rank, or printed again by the API server or Ray, is
    one); of the first one that ended something: oom.phase, oom.first_phase, oom.at_start,
    its numbers, oom.fragmented_share, oom.fragmented, oom.multimodal."""
    found = [event for event in run if event.name == "cuda_oom"]
    ready = first_served(run)
    # A refused allocation before the server came up all the same was survived: a retry with less.
    lasting = [event for event in found if ready is None or event.order > ready.order]
    yield Fact("oom.count", sum(event.repeat for event in found), "derived")
    sizes = {event.fields["want_bytes"] for event in lasting if "want_bytes" in event.fields}
    yield Fact("oom.count_distinct", max(len(sizes), 1 if lasting else 0), "derived")
    first = lasting[0] if lasting else None
    yield Fact("oom.at_start", first is not None and ready is None, "derived", first.source if first else None)
    # Not even a context or the first buffers were granted: whoever filled the device, it was not this server.
    early = first is not None and ready is None and _before_weights(first, run)
    yield Fact("oom.before_weights", early, "derived", first.source if first else None)
    yield Fact(
        "oom.at_wake_up", first is not None and _at_wake_up(first, run), "derived", first.source if first else None
    )
    yield Fact("oom.multimodal", first is not None and _multimodal(first, run), "derived")
    numbers = {} if first is None else _numbers(lasting, run)
    yield from (Fact(f"oom.{name}", value, "derived", first.source) for name, value in numbers.items() if first)
    yield from _fragments(numbers)
    if first is not None:
        phase = _phase(first, numbers, run, ready)
        yield Fact("oom.phase", phase, "derived", first.source)
        yield Fact("oom.first_phase", phase, "derived", first.source)


def _numbers(lasting: Sequence[Event], run: Sequence[Event]) -> dict[str, Value]:
    """The numbers of the first refusal; what its first line leaves out is taken from its echoes.

    What it does not say of the allocator is taken from a table or a line that the program printed of it.
    """
    out: dict[str, Value] = {}
    want = next((event.fields["want_bytes"] for event in lasting if "want_bytes" in event.fields), None)
    for event in lasting:
        if event.fields.get("want_bytes", want) != want:
            continue
        for name in _NUMBERS:
            if name in event.fields:
                out.setdefault(name, event.fields[name])
        reserved, allocated = event.fields.get("reserved_bytes"), event.fields.get("allocated_bytes")
        if isinstance(reserved, int) and isinstance(allocated, int):
            out.setdefault("reserved_unallocated_bytes", max(reserved - allocated, 0))
    allocated, reserved = (_printed(run, name) for name in ("allocated_bytes", "reserved_bytes"))
    if "reserved_unallocated_bytes" not in out and allocated is not None and reserved is not None:
        out["allocated_bytes"], out["reserved_unallocated_bytes"] = allocated, max(reserved - allocated, 0)
    return out


def _printed(run: Sequence[Event], name: str) -> int | None:
    values = [event.fields[name] for event in run if event.name == "allocator_state" and name in event.fields]
    return next((value for value in reversed(values) if isinstance(value, int)), None)


def _fragments(numbers: Mapping[str, Value]) -> Iterator[Fact]:
    held, total, want = (numbers.get(name) for name in ("reserved_unallocated_bytes", "total_bytes", "want_bytes"))
    split = False
    if isinstance(held, int) and isinstance(total, int) and total > 0:
        yield Fact("oom.fragmented_share", held / total, "derived")
        split = isinstance(want, int) and held >= _FRAGMENTED * want and held >= _FRAGMENTED_SHARE * total
    yield Fact("oom.fragmented", split, "derived")


def _phase(first: Event, numbers: Mapping[str, Value], run: Sequence[Event], ready: Event | None) -> str:
    if "dummy_requests" in numbers:
        return "sampler_warmup"
    if ready is not None:
        return "serving"
    near = _phase_of_frames(first, run)
    if near is not None:
        return near
    before = {event.name for event in run if event.order < first.order}
    if first.phase in ("serving", "ready", None) and "model_loaded" in before and "kv_allocated" not in before:
        return "profile"  # the model ran, but nothing was there yet to serve with: it ran for the profile
    started = "launched" in before and not before & {"model_loaded", "kv_allocated"}
    if first.phase in ("launch", None) and started and _mostly_own(numbers):
        return "load_weights"  # a log without a line on loading: nothing else has taken that much by then
    return first.phase or "launch"


def _mostly_own(numbers: Mapping[str, Value]) -> bool:
    """Whether this process itself had been given most of the device when it was refused more."""
    own, total = numbers.get("allocated_bytes"), numbers.get("total_bytes")
    return isinstance(own, int) and isinstance(total, int) and own >= _MOSTLY * total > 0


def _phase_of_frames(first: Event, run: Sequence[Event]) -> str | None:
    """The phase that the functions of its traceback name, in whatever order they were printed.

    Workers write at the same time: where the error came without its frames, those of the same second count.
    """
    names = set(str(first.fields.get("functions", "")).split())
    if not names:
        frames = (event for event in run if event.name == "stack_frame" and _together(event, first))
        names = {str(event.fields.get("function")) for event in frames}
    return next((phase for start, phase in _FRAME_PHASES if any(name.startswith(start) for name in names)), None)


def _together(one: Event, other: Event) -> bool:
    """In the same second; without times, on lines near each other."""
    if one.time is None or other.time is None:
        return abs(one.order - other.order) <= _NEAR
    return abs(one.time - other.time) <= 1.0


def _at_wake_up(first: Event, run: Sequence[Event]) -> bool:
    """Whether it was refused what it had given back to sleep: its own share fitted before, so another took it."""
    near = [event for event in run if event.name == "traceback" and event.source == first.source]
    return any(_WAKES.search(str(event.fields.get("functions", ""))) for event in (first, *near))


def _before_weights(first: Event, run: Sequence[Event]) -> bool:
    words = str(first.fields.get("functions", "")).split()
    loaded = any(event.name == "model_loaded" and event.order < first.order for event in run)
    return not loaded and any(word in _FIRST_TOUCH for word in words)


def _multimodal(first: Event, run: Sequence[Event]) -> bool:
    """Whether the allocation was refused in the image, video or audio part of the model."""
    words = str(first.fields.get("functions", "")).split()
    near = [event for event in run if event.name == "traceback" and event.source == first.source]
    files = [str(event.fields.get("file", "")).rpartition("/")[2].lower() for event in near]
    names = [word.lower() for word in words]
    if any(part in name for name in names for part in _MM_WORDS) or any(_MM_FILES.search(file) for file in files):
        return True
    marked = any(event.name == "mm_profile" and event.order < first.order for event in run)
    return marked and first.phase in ("profile", "serving") and not any(word in _TEXT_STEP for word in words)


def _kv(run: Sequence[Event]) -> Iterator[Fact]:
    """kv.verdict: none, too_small, fits or unknown; kv.available_bytes, kv.needed_bytes, kv.fit_max_len, kv.asked_len,
    kv.least_share."""
    verdict, place = "unknown", None
    for event in run:
        said = _verdict(event)
        if said and not (verdict == "none" and said == "too_small"):
            verdict, place = said, event.source
    yield Fact("kv.verdict", verdict, "derived", place)
    names = {
        "available_bytes": "kv.available_bytes",
        "needed_bytes": "kv.needed_bytes",
        "estimated_max_len": "kv.fit_max_len",
        "max_model_len": "kv.asked_len",
        "least_share": "kv.least_share",
    }
    for field, name in names.items():
        last = next((event for event in reversed(run) if event.name.startswith("kv_") and field in event.fields), None)
        if last is not None:
            yield Fact(name, last.fields[field], "derived", last.source)


def _verdict(event: Event) -> str | None:
    available = event.fields.get("available_bytes")
    if event.name == "kv_no_memory":
        return "none"
    if event.name == "kv_budget":
        if isinstance(available, int) and available <= 0:
            return "none"
        return "too_small" if event.fields.get("fits") is False else None
    if event.name == "kv_allocated":
        return "none" if 0 in (event.fields.get("blocks"), event.fields.get("tokens")) else "fits"
    return None


def _others(events: Sequence[Event], run: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """gpu.other_bytes: the most that other processes were seen to hold; gpu.other_share of the device; gpu.shared."""
    held = other_bytes(events, run, facts)
    if held.count is not None:
        yield Fact("gpu.other_bytes", round(held.count), "derived", held.source)
    share = held.share
    if share is not None:
        yield Fact("gpu.other_share", share, "derived", held.source)
    moved = any(event.name == "memory_moved" for event in run)
    shared = moved or (share is not None and share >= _SHARED)
    yield Fact("gpu.shared", shared, "derived", held.source)
