"""Lines over time agree with what the rest of infradoc computes from the same samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.fleet import history
from infradoc.fleet.machine import gpu_rows, host_row
from infradoc.fleet.replaying import ReplayView
from infradoc.fleet.shares import ledger
from infradoc.model import Reading, Sample
from infradoc.signals.percentiles import percentile
from infradoc.signals.store import Store
from infradoc_rules.catalog import load_catalog


@pytest.fixture(scope="module")
def replay(recordings_dir: Path) -> ReplayView:
    view = ReplayView(recordings_dir / "vllm-05", load_catalog())
    view.load()
    return view


def filled(rows: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]) -> Store:
    store = Store()
    for now in range(len(next(iter(rows.values())))):
        samples = [Sample(name, labels, now, values[now]) for (name, labels), values in rows.items()]
        store.add(Reading("metrics", now, samples))
    return store


@pytest.mark.parametrize("name", ["llm_inter_token_latency_seconds", "llm_time_to_first_token_seconds"])
@pytest.mark.parametrize("back", [0.0, 20.0, 50.0])
def test_rolling_quantiles_are_those_of_the_vitals(replay: ReplayView, name: str, back: float) -> None:
    moment = replay.span[1] - back
    with replay.reading(moment) as frame:
        values, samples = history.rolling(frame, name, np.array([moment]))
        for q, line in values.items():
            wanted = percentile(frame, name, q, history.WINDOW_SECONDS)
            assert samples[0] == wanted.n
            if not np.isnan(line[0]):
                assert line[0] == pytest.approx(wanted.value)


def test_a_rate_survives_a_restart_of_the_server() -> None:
    counter = [10.0 * now for now in range(20)] + [10.0 * now for now in range(20)]
    frame = filled({("llm_generation_tokens_total", ()): counter}).frame(39.0)
    times, values = history.rate(frame, "llm_generation_tokens_total", 5.0, 40.0)
    assert len(times) == 35 and values.min() >= 0
    assert set(np.round(np.delete(values, [15, 16, 17]), 6)) == {10.0}


def test_series_of_several_ranks_add_up_and_the_largest_is_the_largest() -> None:
    rows = {
        ("llm_requests_waiting", (("engine", str(rank)),)): [float(rank + now) for now in range(5)] for rank in (1, 2)
    }
    frame = filled(rows).frame(4.0)
    assert list(history.gauge(frame, "llm_requests_waiting", 0.0, 5.0)[1]) == [3, 5, 7, 9, 11]
    assert list(history.gauge(frame, "llm_requests_waiting", 1.0, 3.0, largest=True)[1]) == [3, 4]


def test_nothing_is_drawn_from_nothing() -> None:
    frame = Store().frame(1.0)
    for name in ("llm_requests_waiting", "llm_generation_tokens_total"):
        assert not len(history.gauge(frame, name, 0.0, 9.0)[0]) and not len(history.rate(frame, name, 0.0, 9.0)[0])
    values, samples = history.rolling(frame, "llm_inter_token_latency_seconds", np.array([1.0, 2.0]))
    assert np.isnan(values[0.5]).all() and not samples.any()
    assert ledger(frame).stages == () and gpu_rows(frame) == [] and not host_row(frame).known


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_a_counter_never_shrinks(values: list[float]) -> None:
    frame = filled({("llm_generation_tokens_total", ()): values}).frame(float(len(values)))
    (series,) = frame.select("llm_generation_tokens_total")
    _, grown = history.grown_counter(series, 0.0, 1e9)
    assert grown[0] == 0 and (np.diff(grown) >= 0).all()


def test_the_ledger_shares_add_up_and_the_mean_is_per_request() -> None:
    stage = "llm_request_stage_seconds_sum"
    rows = {
        (stage, (("stage", "queue"),)): [0.0, 3.0, 6.0],
        (stage, (("stage", "decode"),)): [0.0, 9.0, 18.0],
        ("llm_request_seconds_count", ()): [0.0, 1.0, 2.0],
        ("llm_request_seconds_sum", ()): [0.0, 12.5, 25.0],
    }
    found = ledger(filled(rows).frame(2.0))
    assert [(one.stage, one.mean, one.share) for one in found.stages] == [("queue", 3.0, 0.25), ("decode", 9.0, 0.75)]
    assert (found.requests, found.end_to_end) == (2, 12.5)


def test_gpus_by_index_with_what_they_say() -> None:
    labels = (("gpu", "0"), ("uuid", "x"))
    rows = {
        ("gpu_info", (*labels, ("name", "H200"))): [1.0, 1.0],
        ("gpu_utilization_ratio", labels): [0.5, 0.9],
        ("gpu_memory_size_bytes", labels): [8e9, 8e9],
        ("gpu_memory_size_bytes", (("gpu", "1"), ("uuid", "y"))): [4e9, 4e9],
    }
    first, second = gpu_rows(filled(rows).frame(1.0))
    assert (first.name, first.utilization, first.memory_size, first.power) == ("0 H200", 0.9, 8e9, None)
    assert (second.name, second.utilization, second.memory_size) == ("1", None, 4e9)


def test_the_host_of_a_recording(replay: ReplayView) -> None:
    with replay.reading(replay.span[1]) as frame:
        host = host_row(frame)
    assert host.cpus == 2 and host.busy_cores == pytest.approx(2.0, abs=0.3) and host.known
    assert host.server_memory is not None and host.server_cores is not None


def test_only_the_wanted_part_is_looked_at(replay: ReplayView) -> None:
    end = replay.span[1]
    with replay.reading(end) as frame:
        assert 4 <= len(history.gauge(frame, "llm_requests_waiting", end - 5, end)[0]) <= 6


def test_stages_without_a_request_that_ended_are_no_ledger() -> None:
    store = Store()
    for now in (1.0, 2.0, 3.0):
        queue = Sample("llm_request_stage_seconds_sum", (("stage", "queue"),), now, 4.0 * now)
        store.add(Reading("metrics", now, [queue]))
    assert ledger(store.frame(3.0)).stages == ()
