"""What metrics pages say besides their values: throttling, tails of histograms, memory over several pages."""

from __future__ import annotations

import json
from functools import partial

import pytest

from infradoc.artefacts.kinds import metrics_asked
from infradoc.artefacts.kinds.metrics import MetricsKind

GAPS = "vllm:inter_token_latency_seconds_bucket"


@pytest.fixture(scope="module")
def read(read_kind):
    return partial(read_kind, MetricsKind())


def test_cadvisor_counts_of_throttled_periods(read):
    events, _ = read(
        'container_cpu_cfs_periods_total{container="a"} 100\ncontainer_cpu_cfs_periods_total{container="b"} 300\n'
        'container_cpu_cfs_throttled_periods_total{container="a"} 40\n'
        'container_cpu_cfs_throttled_periods_total{container="b"} 60\n'
    )
    told = [event.fields for event in events if event.name == "cpu_throttled"]
    assert told == [{"periods": 400, "throttled": 100}]


def test_a_histogram_says_where_half_and_nearly_all_lie(read):
    rows = [("0.01", 100), ("0.025", 6000), ("1.0", 9600), ("2.5", 10000), ("+Inf", 10000)]
    page = "vllm:num_requests_running 3.0\n" + "\n".join(f'{GAPS}{{le="{edge}"}} {count}' for edge, count in rows)
    _, known = read(page)
    assert known["metrics.llm_inter_token_latency_seconds.p50"] == 0.025
    assert known["metrics.llm_inter_token_latency_seconds.p99"] == 1.0


def test_a_histogram_of_few_values_has_no_tail(read):
    rows = [("0.01", 1), ("0.025", 6), ("1.0", 9), ("+Inf", 10)]
    page = "vllm:num_requests_running 3.0\n" + "\n".join(f'{GAPS}{{le="{edge}"}} {count}' for edge, count in rows)
    assert not [name for name in read(page)[1] if name.endswith(".p99")]


def test_one_page_gives_one_reading_of_memory(read):
    events, _ = read("vllm:num_requests_running 3.0\nprocess_resident_memory_bytes 5.1e+09\n")
    assert [event.fields["bytes"] for event in events if event.name == "process_usage"] == [5_100_000_000]


def test_what_a_client_measured_is_no_page():
    assert MetricsKind().spans(["itl_p50_ms  24.1", "itl_p99_ms  6210.4", "ttft_p50_s  4.9"]) == []
    assert MetricsKind().spans(["tgi_queue_size 611", "tgi_batch_current_size 74"]) == [(0, 2)]


def answer(*values, name="vllm:num_preemptions_total", kind="matrix"):
    points = [[1760000000 + 30 * at, str(value)] for at, value in enumerate(values)]
    series = {"metric": {"__name__": name, "engine": "0", "odd": 'a"b}'}, "values": points}
    if kind == "vector":
        series = {"metric": series["metric"], "value": points[0]}
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": [series]}})


def test_a_range_that_prometheus_was_asked_for(read):
    _, known = read(answer(0, 160, 320))
    assert (known["metrics.llm_preemptions_total.first"], known["metrics.llm_preemptions_total"]) == (0, 320)
    assert known["metrics.seconds"] == 60
    assert MetricsKind().spans([answer(0, 1)]) == [(0, 1)]
    assert read(answer(7, kind="vector"))[1]["metrics.llm_preemptions_total"] == 7


@pytest.mark.parametrize(
    "text",
    [
        answer(1, name=""),
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
        '{"data": {"resultType": 3, "result": [{"metric": [], "values": 1}]}}',
        '{"resultType": "matrix"',
    ],
)
def test_what_is_no_answer_with_series(text):
    assert MetricsKind().spans([text]) == []
    assert metrics_asked.as_page([text]) in ([], [text])
