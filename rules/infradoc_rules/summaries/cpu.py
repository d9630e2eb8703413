"""The CPU side: quota, threads, throttling, processes at the limit of one core, and where their time goes.

Facts: cpu.limit? (cores that the server may use), cpu.visible? (cores that it sees), cpu.cores? (the first, else the
second), cpu.threads_set, cpu.oversubscribed (a quota far below the cores that libraries size their thread pools by, and
no OMP_NUM_THREADS), cpu.lockstep (a model that runs on the CPU with more threads than cores), cpu.threads_left_out?
(cores left idle by a model on the CPU that was cut down to one thread), cpu.throttled_share?, cpu.frontend_cores?,
cpu.engine_cores?, cpu.tokenizer_share?, cpu.frontend_share?, cpu.idle?, cpu.load_per_core?, cpu.runnable?,
cpu.neighbour_cores?.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact
from infradoc_rules.values import number

_FRONT = lazy(
    r"(?i)api[_ ]?serv|launch_server|^vllm$|tokenizer_?m|sglang::(?:de)?tok|detokenizer|uvicorn|gunicorn|hypercorn"
    r"|router|orchestrator|litellm|proxyactor"
    r"|serve:|http|openai|frontend|vllm serve|lmdeploy serve|trtllm-serve|envoy|nginx"
)
_ENGINE = lazy(
    r"(?i)engine_?cor|schedul|worker|pt_main_thread|model_?server|text-generation-server|rank|llama-server|ollama_llama|executor"
    r"|multiprocessing\.spawn|spawn_main"
)
_TOKENIZE = lazy(
    r"(?i)(?:^|[\s_.:/])(?:_?tokenize\w*|_?(?:batch_)?encode(?:_plus|_batch|_fast|_special_tokens|_chat\w*)?"
    r"|apply_chat_template|_?detokenize\w*"
    r"|convert_ids_to_tokens|convert_tokens_to_\w+|_?(?:batch_)?decode(?:_batch|_fast|_incremental)?|bpe"
    r"|tokenization_\w+|render_jinja_template)(?:$|[\s.(:])"
)
_GPU_WORK = lazy(
    r"(?i)model_runner|forward|execute_model|decode_step|attention|kernel|cuda|event_loop_(?:normal|overlap)|worker"
)
_FRONT_WORK = lazy(
    r"(?i)serialize|model_dump|to_json|dumps|create_logprobs|stream_generator|send_\w+|recv_\w+|sse_\w+|pydantic|asyncio|uvicorn|starlette"
    r"|chat_completion|multimodal|image_process|preprocess|get_next_server"
)
_BEYOND = 1.5  # threads for each core: they run in step, and each waits for the one that has no core


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
    if not events and not facts:
        return
    limit, place = _limit(facts)
    visible = fact(facts, "host.cpus")
    if limit is not None:
        yield Fact("cpu.limit", limit, "derived", place)
    if visible is not None:
        yield Fact("cpu.visible", visible, "derived", facts["host.cpus"].source)
    threads = fact(facts, "omp_num_threads") or fact(facts, "env.OMP_NUM_THREADS")
    yield Fact("cpu.threads_set", threads is not None, "derived")
    many = limit is not None and (visible is None or visible >= 2 * limit) and (threads is None or threads > limit)
    yield Fact("cpu.oversubscribed", many, "derived", place)
    cores = limit or visible
    if cores is not None:
        yield Fact("cpu.cores", cores, "derived", place)
    beyond = cores is not None and threads is not None and threads >= _BEYOND * cores and _computes_here(events, facts)
    yield Fact("cpu.lockstep", beyond, "derived", place)
    spare = _spare_threads(events, facts, threads)
    if spare is not None:
        yield Fact("cpu.threads_left_out", spare[0], "derived", spare[1])
    share = fact(facts, "cgroup.throttled_share")
    counted = next((event for event in reversed(events) if event.name == "cpu_throttled"), None)
    periods = number(counted.fields.get("periods")) if counted is not None else None
    if share is None and counted is not None and periods:
        told = (number(counted.fields.get("throttled")) or 0.0) / periods
        yield Fact("cpu.throttled_share", told, "derived", counted.source)
    if share is not None:
        yield Fact("cpu.throttled_share", share, "derived", facts["cgroup.throttled_share"].source)
    yield from _processes(events, limit or visible)
    yield from _host(events, visible)
    yield from _profile(events)


def _computes_here(events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Whether a model of llama.cpp or Ollama runs on the CPU: no layer was placed on a device."""
    placed = [number(event.fields.get("placed")) or 0.0 for event in events if event.name == "layers_placed"]
    asked = fact(facts, "n_gpu_layers")
    told = any(event.name in ("launched", "omp_threads", "engine_ready") for event in events)
    return told and not any(placed) and not asked


def _spare_threads(
    events: Sequence[Event], facts: Mapping[str, Fact], threads: float | None
) -> tuple[float, str | None] | None:
    """Cores that a model on the CPU does not compute with, because its library was cut down to one thread."""
    cut = next((e for e in events if e.name == "omp_threads" and number(e.fields.get("threads")) == 1), None)
    device = facts.get("target.device")
    if cut is None or threads != 1 or device is None or str(device.value).lower() != "cpu":
        return None
    cores = number(cut.fields.get("cpus"))
    return (cores - 1, cut.source) if cores and cores > 1 else None


def _limit(facts: Mapping[str, Fact]) -> tuple[float | None, str | None]:
    for name in ("cgroup.cpu_quota", "cpu_limit", "container.cpus", "container.cpu_limit"):
        value = fact(facts, name)
        if value:
            return value, facts[name].source
    return None, None


def _processes(events: Sequence[Event], cores: float | None) -> Iterator[Fact]:
    rows = [
        event for event in events if event.name == "process_usage" and number(event.fields.get("cores")) is not None
    ]
    front = [event for event in rows if _is_front(str(event.fields["name"]))]
    engine = [event for event in rows if _ENGINE.search(str(event.fields["name"])) and event not in front]
    for name, group in (("frontend", front), ("engine", engine)):
        best = max(group, key=lambda event: number(event.fields["cores"]) or 0.0, default=None)
        if best is not None:
            yield Fact(f"cpu.{name}_cores", number(best.fields["cores"]) or 0.0, "derived", best.source)
    own = [*front, *engine]
    other = [event for event in rows if event not in own and (number(event.fields["cores"]) or 0.0) >= 0.5]
    if own:
        total = sum(number(event.fields["cores"]) or 0.0 for event in other)
        yield Fact("cpu.neighbour_cores", total, "derived", other[0].source if other else None)
    if rows and cores:
        last = max(number(event.fields.get("sample")) or 0.0 for event in rows)
        now = [event for event in rows if (number(event.fields.get("sample")) or 0.0) == last]
        used = sum(number(event.fields["cores"]) or 0.0 for event in now)
        yield Fact("cpu.used_share", used / cores, "derived", now[0].source)


def _is_front(name: str) -> bool:
    return bool(_FRONT.search(name)) and not re.search(r"(?i)engine_?cor|schedul", name)


def _host(events: Sequence[Event], visible: float | None) -> Iterator[Fact]:
    for field in ("idle", "load", "runnable"):
        row = next((event for event in reversed(events) if event.name == "host_usage" and field in event.fields), None)
        value = number(row.fields[field]) if row is not None else None
        if row is None or value is None:
            continue
        if field == "idle":
            yield Fact("cpu.idle", value, "derived", row.source)
        elif field == "runnable":
            yield Fact("cpu.runnable", value, "derived", row.source)
        elif visible:
            yield Fact("cpu.load_per_core", value / visible, "derived", row.source)


def _profile(events: Sequence[Event]) -> Iterator[Fact]:
    """Shares of a profile, or of the threads that were at work when stacks were taken."""
    rows = [event for event in events if event.name == "stack_sample"]
    shares = [event for event in rows if "total_share" in event.fields]
    stacks = [event for event in rows if "state" in event.fields]
    active = [event for event in stacks if event.fields["state"] == "active" or event.fields.get("holds_gil") is True]
    for name, pattern in (("tokenizer", _TOKENIZE), ("frontend", _FRONT_WORK)):
        mine = [event for event in shares if pattern.search(str(event.fields.get("functions", "")))]
        best = max(mine, key=lambda event: number(event.fields["total_share"]) or 0.0, default=None)
        if best is not None:
            yield Fact(f"cpu.{name}_share", number(best.fields["total_share"]) or 0.0, "derived", best.source)
            continue
        seen = [event for event in active if _stack_is(event, pattern)]
        if len(active) >= 1 and seen:
            yield Fact(f"cpu.{name}_share", len(seen) / len(active), "derived", seen[0].source)


def _stack_is(event: Event, pattern: re.Pattern[str]) -> bool:
    words = str(event.fields.get("functions", "")).split()
    return any(pattern.search(word) for word in words[:15]) and not any(_GPU_WORK.search(word) for word in words[:3])
