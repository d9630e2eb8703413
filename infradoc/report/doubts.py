"""Why silence of all rules is no health: what was given ends in an error, or shows nothing at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infradoc.report.artefact_words import artefact_words
from infradoc.report.quoting import quoted
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.start import SERVING
from infradoc_rules.values import number

# What may stand in a log of a server that never came up, or in a file beside it.
_IDLE = frozenset(
    {
        "flag_refused",
        "error_line",
        "stack_frame",
        "traceback",
        "topology_link",
        "p2p_disabled",
        "nccl_setting",
        "nccl_network",
        "train_config",
        "train_code",
        "backend_chosen",
        "omp_threads",
        "prefill_budget",
        "slow_tokenizer",
        "host_memory",
        "host_usage",
        "shm_ring_wait",
        "xid",
        "calibration",
        "model_format",
    }
)
_AT_WORK = SERVING | {"slot_released", "bench_result"}
_STARTING = frozenset(
    {"launched", "model_loaded", "memory_account", "kv_budget", "kv_allocated", "graph_capture", "engine_initialised"}
)
_GOES_ON = _AT_WORK | _STARTING | {"eval_loss"}
# How a program that is stopped, or a client that leaves, ends in a log.
_HARMLESS = lazy(
    r"Cancelled|BrokenPipe|ConnectionReset|Disconnect|ClientClosed|SystemExit\(0\)|GeneratorExit|Event loop is closed"
    r"|interpreter shutdown"
)
_STOPPED = lazy(r"KeyboardInterrupt|CANCELLED AT|DUE TO TIME LIMIT|SIGTERM|SIGINT")  # by its owner: the rest are echoes
_CLIENTS = frozenset({"request_rejected_length", "request_truncated", "request_rejected_load"})
_PROBES = lazy(r"^/(?:health\w*|ready\w*|live\w*|ping|metrics|v1/models|version|info)\b")
_ANSWERS = frozenset({"http_access", "request_failed", "request_finished"})
_NEWEST = 3  # failures in a row at the end of the log
_MOST_FAILED = 0.01  # share of the answers; single ones of thousands are what a busy server has
_NEAR_LIMIT = 0.9
_RING_WAITS = 2


def doubts(events: Sequence[Event], facts: Mapping[str, Fact], scraped: bool, lang: str = "en") -> list[str]:
    """One sentence for each reason; none where health may be said. `scraped`: a metrics page was given."""
    say = artefact_words(lang)
    ended = _ended(events)
    found = [_told("ends_in_error", ended, say)] if ended is not None else []
    found += _answers(events, say)
    found += _numbers(events, facts, say)
    if not scraped and not any(event.name in _AT_WORK for event in events):
        found += _signs(events, facts, say)
        if not found and events and all(event.name in _IDLE or event.name in _STARTING for event in events):
            started = any(event.name in _STARTING for event in events)
            found.append(say["not_ready" if started else "nothing_ran"])
    return found


def _told(key: str, event: Event, say: Mapping[str, str], **values: object) -> str:
    return say[key].format(**quoted(event), **values)


def _ended(events: Sequence[Event]) -> Event | None:
    """The error that a log ends with: nothing after it in that log says that the program went on."""
    lasts: dict[str, Event] = {}
    stopped: set[str] = set()
    clients = {event.source for event in events if event.name in _CLIENTS}
    for event in events:
        file = (event.source or "").rpartition(":")[0]
        text = event.text or ""
        if event.name not in _GOES_ON and _STOPPED.search(text):
            stopped.add(file)
        elif event.name in ("error_line", "traceback"):
            if file not in stopped and event.source not in clients and not _HARMLESS.search(text):
                lasts[file] = event
        elif event.name in _GOES_ON or event.name in _CLIENTS or _answered(event):
            lasts.pop(file, None)
    return next(iter(lasts.values()), None)


def _answered(event: Event) -> bool:
    return event.name == "http_access" and (number(event.fields.get("code")) or 0) < 500


def _answers(events: Sequence[Event], say: Mapping[str, str]) -> Iterator[str]:
    """Requests that ended in a server's error: more than a busy server has by the way, or the newest ones.

    Probes of orchestrators are no requests.
    """
    asked = [event for event in events if event.name in _ANSWERS and not _is_probe(event)]
    failed = [event for event in asked if _is_failed(event)]
    count, total = sum(event.repeat for event in failed), sum(event.repeat for event in asked)
    newest = asked[-_NEWEST:]
    at_end = len(newest) == _NEWEST and all(map(_is_failed, newest))
    if failed and (at_end or count > _MOST_FAILED * total):
        yield _told("answers_failed", newest[0] if at_end else failed[0], say, count=count, total=total)


def _is_probe(event: Event) -> bool:
    return event.name == "http_access" and _PROBES.search(str(event.fields.get("path"))) is not None


def _is_failed(event: Event) -> bool:
    return event.name == "request_failed" or (event.name == "http_access" and not _answered(event))


def _numbers(events: Sequence[Event], facts: Mapping[str, Fact], say: Mapping[str, str]) -> Iterator[str]:
    """The last steps that a trainer logged have no loss; too few of them to say that it stays so."""
    bad = facts.get("train.bad_steps")
    count = number(bad.value) if bad is not None else None
    steps = [event for event in events if event.name == "train_step"]
    if count and steps:
        yield _told("last_steps_broken", steps[-1], say, count=int(count))


def _signs(events: Sequence[Event], facts: Mapping[str, Fact], say: Mapping[str, str]) -> Iterator[str]:
    """What alone is too little for a finding, and too much for health."""
    xid = next((event for event in events if event.name == "xid"), None)
    if xid is not None:
        yield _told("xid_alone", xid, say, code=xid.fields.get("code"))
    waits = [event for event in events if event.name == "shm_ring_wait"]
    if sum(event.repeat for event in waits) >= _RING_WAITS:
        yield _told("workers_waited_for", waits[-1], say, count=sum(event.repeat for event in waits))
    off = next((event for event in events if event.name == "p2p_disabled"), None)
    if off is not None and not waits:
        yield _told("peers_off", off, say)
    full = [event for event in events if event.name == "process_usage" and _near_limit(event)]
    if full and len({event.fields.get("sample") for event in events if event.name == "process_usage"}) == 1:
        yield _told("near_limit", full[0], say)
    short = facts.get("host.used_share")
    if not full and short is not None and (number(short.value) or 0) >= _NEAR_LIMIT:
        yield say["host_near_limit"].format(share=f"{number(short.value) or 0:.0%}", source=short.source or "?")


def _near_limit(event: Event) -> bool:
    held, limit = number(event.fields.get("bytes")), number(event.fields.get("limit_bytes"))
    return held is not None and bool(limit) and held >= _NEAR_LIMIT * (limit or 0.0)
