"""The store: bounded, in order, stale when a source goes blind, facts with change marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infradoc.model import Reading, Sample
from infradoc.signals.ring import Ring
from infradoc.signals.store import Limits, Store
from infradoc_rules.model import Event, Fact
from infradoc_rules.promql import is_stale

LABELS = (("model", "m"),)


def sample(name: str, time: float, value: float, **labels: str) -> Sample:
    return Sample(name, tuple(sorted(labels.items())), time, value)


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 60), st.floats(-1e9, 1e9)), max_size=200))
def test_ring_keeps_the_newest_in_order(limit: int, steps: list[tuple[int, float]]) -> None:
    ring, model = Ring(limit), []
    views = []
    for time, value in steps:
        accepted = ring.append(float(time), value)
        assert accepted == (not model or time > model[-1][0])
        if accepted:
            model.append((float(time), value))
        times, values = ring.view(float("inf"))
        views.append((times, values, model[-limit:]))
        assert len(ring) == min(limit, len(model))
    for times, values, expected in views:  # also the views given out earlier still say what they said
        assert list(zip(times, values, strict=True)) == expected


@given(st.lists(st.integers(0, 100), unique=True, min_size=1, max_size=80), st.integers(-1, 101))
def test_ring_view_ends_at_the_moment_asked_for(times: list[int], until: int) -> None:
    ring = Ring(100)
    for time in sorted(times):
        ring.append(float(time), float(time))
    assert list(ring.view(float(until))[0]) == [float(time) for time in sorted(times) if time <= until]


def test_failed_source_makes_its_series_stale_and_no_others() -> None:
    store = Store("vllm")
    store.add(Reading("metrics", 1.0, [sample("llm_requests_running", 1.0, 3)]))
    store.add(Reading("host", 1.0, [sample("host_load1", 1.0, 2)]))
    store.add(Reading("metrics", 2.0, error="It refuses."))
    running = store.series("llm_requests_running", 9.0)[0]
    assert list(running.times) == [1.0, 2.0] and is_stale(float(running.values[-1]))
    assert list(store.series("host_load1", 9.0)[0].values) == [2.0]
    assert store.errors == {"metrics": "It refuses."}
    up = {one.labels["source"]: list(one.values) for one in store.series("target_up", 9.0)}
    assert up == {"metrics": [1.0, 0.0], "host": [1.0]}
    store.add(Reading("metrics", 5.0, error="It refuses."))
    age = {one.labels["source"]: float(one.values[-1]) for one in store.series("target_sample_age_seconds", 9.0)}
    assert age["metrics"] == 4.0
    store.add(Reading("metrics", 6.0, [sample("llm_requests_running", 6.0, 1)]))
    assert store.errors == {} and float(store.series("llm_requests_running", 9.0)[0].values[-1]) == 1.0


def test_series_that_vanishes_gets_one_stale_marker() -> None:
    store = Store()
    store.add(Reading("metrics", 1.0, [sample("a_x", 1.0, 1, engine="0"), sample("a_x", 1.0, 1, engine="1")]))
    for time in (2.0, 3.0):
        store.add(Reading("metrics", time, [sample("a_x", time, 1, engine="0")]))
    by_engine = {one.labels["engine"]: one for one in store.series("a_x", 9.0)}
    assert list(by_engine["0"].times) == [1.0, 2.0, 3.0]
    assert list(by_engine["1"].times) == [1.0, 2.0] and is_stale(float(by_engine["1"].values[-1]))


def test_memory_is_bounded() -> None:
    store = Store(limits=Limits(samples_per_series=10, series=5, events=3, marks=2))
    for time in range(100):
        many = [sample("a_x", float(time), time, id=str(place)) for place in range(20)]
        event = Event("preempted", time)
        store.add(Reading("metrics", float(time), many, [event], [Fact("max_num_seqs", time, "api")]))
    assert sum(len(store.series(name, 1e9)) for name in store.names) <= 5
    assert all(len(one.times) <= 10 for one in store.series("a_x", 1e9))
    assert store.dropped_series == 15  # of 20 shown at every look, not 15 more each time
    assert [event.order for event in store.events] == [97, 98, 99]
    assert [(mark.before, mark.after) for mark in store.marks] == [(97, 98), (98, 99)]


def test_facts_of_the_running_server_beat_the_command_line() -> None:
    store = Store()
    store.add(Reading("metrics", 1.0, facts=[Fact("max_num_seqs", 8, "metrics")]))
    store.add(Reading("launch", 2.0, facts=[Fact("max_num_seqs", 4, "flag"), Fact("dtype", "float32", "flag")]))
    assert store.facts["max_num_seqs"].value == 8 and store.facts["dtype"].value == "float32"
    store.add(Reading("admin", 3.0, facts=[Fact("max_num_seqs", 16, "api")]))
    assert store.facts["max_num_seqs"].value == 16
    assert [(mark.time, mark.name, mark.before, mark.after) for mark in store.marks] == [(3.0, "max_num_seqs", 8, 16)]


def test_system_and_version_come_from_facts() -> None:
    store = Store()
    store.add(
        Reading("metrics", 1.0, facts=[Fact("target.system", "vllm", "metrics"), Fact("target.version", "0.32", "api")])
    )
    assert (store.system, store.version) == ("vllm", "0.32")


def test_late_samples_are_counted_and_left_out() -> None:
    store = Store()
    store.add(Reading("metrics", 5.0, [sample("a_x", 5.0, 1)]))
    store.add(Reading("metrics", 4.0, [sample("a_x", 4.0, 2)]))
    assert list(store.series("a_x", 9.0)[0].values) == [1.0]
    assert store.late_samples >= 1
