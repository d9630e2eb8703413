"""A long log read by the batch says what it says line by line, and what is held of it does not grow with it."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.artefacts.log_reader import LogReader
from infradoc.artefacts.thin import Thinner
from infradoc_rules.patterns import LogScanner

KEEP = 60
REQUESTS = ("POST /v1/completions HTTP/1.1", "GET /health HTTP/1.1", "GET /metrics HTTP/1.1")
CODES = ("200 OK", "400 Bad Request", "500 Internal Server Error")
STATS = (
    "(APIServer pid=9) INFO 11-29 20:34:{:02d} [loggers.py:257] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg "
    "generation throughput: {}.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache "
    "hit rate: 0.0%"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
ODD = (
    f'{OOM} GPU 0 has a total capacity of 79.25 GiB of which 1.00 GiB is free - "GET /health HTTP/1.1" 200 OK',
    'he said "no" - "GET /health HTTP/1.1" 200 OK',
    'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK, and more',
    'INFO:     10.0.0.1:5 - "GET /health',
    ' - "',
    "",
    "RuntimeError: x",
    "Traceback (most recent call last):",
    OOM,
)
TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', f'    raise "{OOM}"', OOM]


def access(number: int) -> str:
    return f'INFO:     10.0.0.{number % 250}:5{number % 999} - "{REQUESTS[number % 3]}" {CODES[number // 7 % 3]}'


def stats(number: int) -> str:
    return STATS.format(number % 60, number % 500, number % 90)


def counts(events):
    found = Counter()
    for event in events:
        found[event.name, event.fields.get("code"), event.fields.get("path")] += event.repeat
    return found


LINES = st.one_of(
    st.integers(0, 60).map(lambda number: [access(number)]),
    st.integers(0, 60).map(lambda number: [stats(number)]),
    st.sampled_from(ODD).map(lambda line: [line]),
    st.just(TRACE),  # in one piece: a line between a frame and its code is taken for the code
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=80), st.integers(1, 60))
def test_batches_say_what_lines_say(tail, size):
    lines = [access(number) for number in range(2 * KEEP)] + [line for group in tail for line in group]
    scanner, reader = LogScanner("vllm", "s"), LogReader(LogScanner("vllm", "s"), Thinner(KEEP, 8))
    events = [event for line in lines for event in scanner.feed(line)]
    for start in range(0, len(lines), size):
        reader.feed(lines[start : start + size])
    artefact = reader.artefact()
    assert counts(artefact.events) == counts(events)
    assert artefact.unparsed == scanner.unparsed
    last = [(event.source, event.name, event.text) for event in artefact.events if event.repeat == 1][-KEEP:]
    assert last == [(event.source, event.name, event.text) for event in events[-KEEP:]]


@pytest.mark.parametrize("line", [ODD[0], f"Killed: {OOM}\n{access(1)}"])
def test_what_stands_before_a_request_is_read_when_it_is_no_client(line):
    reader = LogReader(LogScanner("vllm", "s"), Thinner(KEEP, 8))
    reader.feed([access(number) for number in range(5_000)])  # more than are read in full before ends are known
    reader.feed([line])
    found = [event for event in reader.artefact().events if event.source == "s:5001"]
    assert {event.name for event in found} == {"cuda_oom", "http_access"}
    assert all(event.repeat == 1 for event in found)


def test_known_access_lines_are_not_searched_for_patterns(monkeypatch):
    reader = LogReader(LogScanner("vllm", "s"), Thinner(KEEP, 8))
    reader.feed([access(number) for number in range(5_000)])
    monkeypatch.setattr(LogScanner, "feed", lambda self, line: pytest.fail(line))
    reader.feed([access(number) for number in range(5_000)])
    assert sum(event.repeat for event in reader.artefact().events) == 10_000


def _held(lines: int) -> tuple[int, int]:
    """Events and bytes that are held of a log of so many lines."""
    tracemalloc.start()
    reader = LogReader(LogScanner("vllm", "s"), Thinner(KEEP, 8))
    for start in range(0, lines, 500):
        reader.feed([stats(number) if number % 20 == 0 else access(number) for number in range(start, start + 500)])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return len(reader.artefact().events), held


def test_what_is_held_does_not_grow_with_the_log():
    """All stretches of the middle are there after the first lines; from then on they are joined, not added to."""
    _held(500)  # what is loaded once is loaded now
    events, held = _held(20_000)
    later_events, later_held = _held(80_000)
    assert later_events <= 1.5 * events < 2_000
    assert later_held <= 1.5 * held
