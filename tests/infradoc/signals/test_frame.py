"""What a rule sees: samples up to now, zero for counters that have not counted, views of facts and events."""

from __future__ import annotations

import pytest

from infradoc.model import Reading, Sample
from infradoc.signals.frame import StoreFrame, window_for
from infradoc.signals.store import Store
from infradoc_rules.model import Event, Fact


def store_with(*samples: Sample, provides: frozenset[str] = frozenset()) -> Store:
    store = Store("vllm")
    store.provide(provides)
    for time in sorted({one.time for one in samples}):
        store.add(Reading("metrics", time, [one for one in samples if one.time == time]))
    return store


def running(time: float) -> Sample:
    return Sample("llm_requests_running", (), time, 2.0)


def test_nothing_later_than_now_is_visible() -> None:
    frame = store_with(running(1.0), running(2.0), running(3.0)).frame(2.0)
    assert list(frame.select("llm_requests_running")[0].times) == [1.0, 2.0]
    assert store_with(running(3.0)).frame(2.0).select("llm_requests_running") == []


def test_absent_counter_of_this_engine_is_zero_at_every_scrape() -> None:
    store = store_with(
        running(1.0), running(2.0), provides=frozenset({"llm_preemptions_total", "llm_requests_running"})
    )
    (zero,) = store.frame(2.0).select("llm_preemptions_total")
    assert list(zero.times) == [1.0, 2.0] and list(zero.values) == [0.0, 0.0] and zero.labels == {}


@pytest.mark.parametrize("name", ["llm_preemptions_total", "llm_kv_cache_usage_ratio", "gpu_utilization_ratio"])
def test_absent_is_no_data_where_the_engine_never_shows_it(name: str) -> None:
    store = store_with(running(1.0), provides=frozenset({"llm_requests_running", "llm_kv_cache_usage_ratio"}))
    assert store.frame(1.0).select(name) == []


def test_no_sibling_no_zero() -> None:
    store = Store("vllm")
    store.provide({"llm_preemptions_total"})
    store.add(Reading("metrics", 1.0, error="down"))
    assert store.frame(1.0).select("llm_preemptions_total") == []


def test_facts_and_events_can_be_read_as_series() -> None:
    store = store_with(running(1.0), running(2.0))
    store.add(Reading("launch", 2.0, facts=[Fact("max_num_seqs", 8, "flag")]))
    store.add(Reading("log", 2.0, events=[Event("preempted", 1, {"mode": "recompute", "count": 1}, time=1.5)]))
    frame = store.frame(2.0)
    (value,) = [one for one in frame.select("config_value") if one.labels["knob"] == "max_num_seqs"]
    assert value.values[-1] == 8.0
    (count,) = [one for one in frame.select("log_event_total") if one.labels.get("event") == "preempted"]
    assert count.values[0] == 0.0 and count.values[-1] == 1.0
    assert frame.facts["max_num_seqs"].value == 8 and frame.events[0].name == "preempted"


@pytest.mark.parametrize(("period", "window"), [(1.0, 10.0), (2.5, 10.0), (5.0, 20.0), (15.0, 60.0)])
def test_window_is_four_periods_and_ten_seconds_at_least(period: float, window: float) -> None:
    assert window_for(period) == window
    assert StoreFrame(Store(period=period), 0.0).window == window
