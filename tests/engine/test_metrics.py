"""The text format, against prometheus-client's parser; counters and histograms from several threads."""

from __future__ import annotations

import threading
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from infradoc_engine.exposition import Counter, Histogram, fine_buckets, format_value, write_family
from infradoc_engine.metrics import EngineMetrics


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_page_parses_and_hostile_labels_survive() -> None:
    metrics = EngineMetrics()
    nasty = 'a"b\\c\nd{e="f"}'
    metrics.http_requests.inc(nasty, "200")
    metrics.add_collector(lambda out: write_family(out, "x_total", "counter", "x", [({"k": nasty}, 1.5)]))
    samples = _samples(metrics.render().decode())
    assert samples["llm_http_requests_total", (("code", "200"), ("path", nasty))] == 1
    assert samples["x_total", (("k", nasty),)] == 1.5
    assert samples["llm_requests_rejected_total", (("reason", "length"),)] == 0


def test_histogram_is_cumulative_and_its_bounds_are_inclusive() -> None:
    histogram = Histogram("h_seconds", "h", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    out: list[str] = []
    histogram.render(out)
    samples = _samples("".join(out))
    assert [samples["h_seconds_bucket", (("le", le),)] for le in ("0.1", "1", "+Inf")] == [2, 4, 5]
    assert samples["h_seconds_count", ()] == 5
    assert samples["h_seconds_sum", ()] == 8.65


def test_fine_buckets_have_ten_a_decade() -> None:
    bounds = fine_buckets(1e-3, 10.0)
    assert bounds[0] == 1e-3 and bounds[-1] == 10.0 and len(bounds) == 41
    assert all(1.25 < high / low < 1.27 for low, high in pairwise(bounds))


def test_counts_from_several_threads_are_not_lost() -> None:
    counter, histogram = Counter("c_total", "c", ["k"]), Histogram("h", "h", (1.0,), ["k"])

    def work() -> None:
        for _ in range(2000):
            counter.inc("a")
            histogram.observe(0.5, "a")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value("a") == 8000
    assert histogram.total("a") == (8000, 4000.0)


def test_values_are_written_whole_where_they_are() -> None:
    assert [format_value(value) for value in (3, 3.0, 0.5, 1e20, 12345678901234)] == [
        "3",
        "3",
        "0.5",
        "1e+20",
        "12345678901234",
    ]
    assert format_value(float("inf")) == "+Inf" and format_value(float("nan")) == "NaN"
