"""The frame in memory and the views of events and facts."""

from __future__ import annotations

import numpy as np

from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact, Series

SERIES = Series("llm_requests_running", {"engine": "0"}, [1.0, 2.0, 3.0], [5.0, 6.0, 7.0])
EVENTS = [Event("preempted", 1, {"mode": "swap", "count": 2}, time=1.5), Event("preempted", 2, {"count": 4}, time=2.5)]


def test_nothing_later_is_visible():
    frame = MemoryFrame.build([SERIES], events=EVENTS)
    assert frame.now == 3.0
    earlier = frame.at(2.2)
    assert list(earlier.select("llm_requests_running")[0].values) == [5.0, 6.0]
    assert len(earlier.events) == 1
    assert frame.at(0.5).select("llm_requests_running") == []


def test_numpy_series_work_too():
    frame = MemoryFrame.build([Series("llm_requests_running", {}, np.array([1.0, 2.0]), np.array([3.0, 4.0]))])
    assert list(frame.at(1.0).select("llm_requests_running")[0].values) == [3.0]


def test_events_and_facts_are_series_too():
    frame = MemoryFrame.build(
        [SERIES], events=EVENTS, facts=[Fact("max_num_seqs", 4, "flag"), Fact("dtype", "auto", "log")]
    )
    [count] = frame.select("log_event_total")
    assert (count.labels, list(count.values)) == ({"event": "preempted"}, [0.0, 1.0, 2.0])
    [value] = [one for one in frame.select("log_value") if one.labels["name"] == "count"]
    assert (list(value.times), list(value.values)) == ([2.0, 3.0], [2.0, 4.0])
    [knob] = frame.select("config_value")
    assert (knob.labels, knob.values[-1]) == ({"knob": "max_num_seqs", "origin": "flag"}, 4.0)
    [info] = frame.select("config_info")
    assert info.labels == {"knob": "dtype", "value": "auto", "origin": "log"}


def test_a_counter_without_increment_reads_zero_at_every_scrape():
    [zero] = MemoryFrame.build([SERIES]).select("llm_preemptions_total")
    assert (zero.labels, list(zero.times), list(zero.values)) == ({}, [1.0, 2.0, 3.0], [0.0, 0.0, 0.0])


def test_an_empty_frame_has_nothing():
    frame = MemoryFrame.build()
    assert [frame.select(name) for name in ("llm_preemptions_total", "config_value", "log_event_total")] == [[], [], []]
