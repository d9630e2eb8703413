"""Client measurements: rows to histograms and counters, and following a growing file."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from infradoc.model import Sample
from infradoc.sources.client import BOUNDS, ClientSource, ClientTotals, outcome_of, refusals

OK = {"id": 1, "start": 10.0, "ttft": 0.2, "e2e": 1.0, "status": 200, "finish_reason": "stop", "class": "chat"}


def row(**changes: Any) -> dict[str, Any]:
    return {**OK, **changes}


def value(samples: list[Sample], name: str, **labels: str) -> float:
    found = [one.value for one in samples if one.name == name and dict(one.labels) == labels]
    assert len(found) == 1, (name, labels)
    return found[0]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "ok"),
        ({"finish_reason": "length"}, "length"),
        ({"status": 400, "error": "too long"}, "http_4xx"),
        ({"status": 503}, "http_5xx"),
        ({"status": None, "error": "ReadTimeout: timed out"}, "timeout"),
        ({"status": None, "error": "peer closed connection"}, "cut"),
        ({"status": 200, "error": "stream ended without finish"}, "cut"),
    ],
)
def test_outcomes(changes: dict[str, Any], outcome: str) -> None:
    assert outcome_of(row(**changes)) == outcome


def test_totals_by_class_with_gaps_and_lengths() -> None:
    totals = ClientTotals()
    totals.add(row(itl=[0.01, 0.02, 0.5], prompt_words=10, prompt_tokens=12))
    totals.add(row(ttft=0.4, prompt_words=5))
    totals.add(row(**{"class": "doc"}, ttft=None))
    totals.add(row(status=500))
    totals.add(row(status=None, error="in flight at end of recording"))
    samples = totals.samples(99.0)
    assert value(samples, "client_requests_total", outcome="ok", **{"class": "chat"}) == 2
    assert value(samples, "client_requests_total", outcome="http_5xx", **{"class": "chat"}) == 1
    assert value(samples, "client_time_to_first_token_seconds_count", **{"class": "chat"}) == 2
    assert value(samples, "client_time_to_first_token_seconds_sum", **{"class": "chat"}) == pytest.approx(0.6)
    assert value(samples, "client_inter_token_latency_seconds_count", **{"class": "chat"}) == 3
    assert value(samples, "client_request_seconds_count", **{"class": "doc"}) == 1
    assert value(samples, "client_prompt_words_total", **{"class": "chat"}) == 10
    assert value(samples, "client_prompt_tokens_total", **{"class": "chat"}) == 12
    assert not any(one.name.startswith("client_time_to_first") and ("class", "doc") in one.labels for one in samples)
    assert all(one.time == 99.0 for one in samples)


@pytest.mark.parametrize(
    "changes", [{"itl": 5}, {"itl": ["x", None]}, {"ttft": float("nan")}, {"e2e": 10**400}, {"ttft": float("inf")}]
)
def test_rows_with_figures_that_are_none_spoil_nothing(changes: dict[str, Any]) -> None:
    totals = ClientTotals()
    totals.add(row(**changes))
    totals.add(row())
    samples = totals.samples(1.0)
    assert value(samples, "client_requests_total", **{"outcome": "ok", "class": "chat"}) == 2
    assert all(0 <= one.value < 1e6 for one in samples)


def test_buckets_are_cumulative_and_fine() -> None:
    totals = ClientTotals()
    for seconds in (0.0005, 0.2, 0.2, 5000.0):
        totals.add(row(ttft=seconds))
    buckets = {
        dict(s.labels)["le"]: s.value for s in totals.samples(0.0) if s.name.endswith("first_token_seconds_bucket")
    }
    counts = list(buckets.values())
    assert counts == sorted(counts) and counts[0] == 1 and buckets["+Inf"] == 4
    assert buckets["0.1995"] == 1 and buckets["0.2512"] == 3
    assert all(1.24 < high / low < 1.28 for low, high in pairwise(BOUNDS))


def test_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    source = ClientSource(path)
    assert not source.is_supported() and "no file" in str(source.why_not())
    path.write_text(json.dumps(OK) + "\n" + json.dumps(OK)[:20])
    assert source.is_supported()
    first = source.read(1.0)
    assert value(first.samples, "client_requests_total", outcome="ok", **{"class": "chat"}) == 1
    with path.open("a") as handle:
        handle.write(json.dumps(OK)[20:] + "\nrubbish\n[1]\n\n")
    second = source.read(2.0)
    assert value(second.samples, "client_requests_total", outcome="ok", **{"class": "chat"}) == 2
    assert source.bad_lines == 2
    path.unlink()
    assert source.read(3.0).error is not None


def test_refused_for_length_is_an_event_with_the_numbers() -> None:
    body = (
        '{"error":{"code":400,"message":"request (1973 tokens) exceeds the available context size (1024 tokens), try"}}'
    )
    (event,) = refusals(row(status=400, error=body, start=10.0, e2e=0.5))
    assert event.name == "request_rejected_length" and event.time == 10.5
    assert event.fields["tokens"] == 1973 and event.fields["limit"] == 1024
    assert refusals(row(status=400, error="bad temperature")) == []
    assert refusals(row()) == []
