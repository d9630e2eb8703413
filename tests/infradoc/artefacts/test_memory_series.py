"""Memory readings that people log by themselves: which lines are a series, and which are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.memory_series import MemorySeriesKind
from infradoc.artefacts.model import Segment

CSV = ["time,pid,rss_mb,requests", *(f"2026-08-14T{8 + n:02d}:00:00Z,4471,{5000 + 2000 * n},{n}" for n in range(4))]
STATUS = ["VmRSS:\t 8120344 kB", "VmRSS:\t 9410220 kB", "VmRSS:\t10720112 kB"]
POD = [f"2026-08-14 {8 + n:02d}:00  vllm-0   vllm   1310m   {12000 + 3000 * n}Mi" for n in range(4)]
MARKDOWN = ["| time | RSS |", "|------|-----|", "| 0 h | 6.1 GiB |", "| 2 h | 9.0 GiB |", "| 4 h | 12.2 GiB |"]


def _read(lines):
    kind = MemorySeriesKind()
    spans = kind.spans(lines)
    assert len(spans) == 1
    start, end = spans[0]
    return kind.read(Segment("memory_series", "m.txt", start + 1, lines[start:end])).events


@pytest.mark.parametrize(
    ("lines", "sizes", "hours"),
    [
        (CSV, [5000 << 20, 7000 << 20, 9000 << 20, 11000 << 20], 3.0),
        (STATUS, [8120344 << 10, 9410220 << 10, 10720112 << 10], None),
        (POD, [12000 << 20, 15000 << 20, 18000 << 20, 21000 << 20], 3.0),
        (MARKDOWN, [round(6.1 * (1 << 30)), 9 << 30, round(12.2 * (1 << 30))], 4.0),
    ],
    ids=["csv", "status", "pod", "markdown"],
)
def test_a_series_has_sizes_and_times(lines, sizes, hours):
    events = _read(lines)
    assert [event.fields["bytes"] for event in events] == sizes
    times = [event.fields.get("seconds") for event in events]
    if hours is None:
        assert times == [None] * len(times)
    else:
        assert (times[-1] - times[0]) / 3600 == hours


@pytest.mark.parametrize(
    "lines",
    [
        STATUS[:2],
        [f"step {n} loss 2.{n} mem 41.{n} GB" for n in range(9)],
        [f"INFO 10-25 13:02:1{n} Available KV cache memory: 6.9{n} GiB" for n in range(5)],
        ["time,loss", "1,2.3", "2,2.2", "3,2.1"],
    ],
    ids=["two readings", "training", "a log", "another table"],
)
def test_what_is_no_series(lines):
    assert MemorySeriesKind().spans(lines) == []


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_text_is_read_without_error(lines):
    kind = MemorySeriesKind()
    for start, end in kind.spans(lines):
        assert 0 <= start < end <= len(lines)
        assert kind.read(Segment("memory_series", "m.txt", start + 1, lines[start:end])).events
