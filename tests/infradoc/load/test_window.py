from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.load.record import RequestRecord
from infradoc.load.window import cut_window


def record(start: float, ttft: float, itl: list[float], cls: str = "chat") -> RequestRecord:
    return RequestRecord(
        1,
        "/v1/completions",
        start,
        cls,
        ttft,
        ttft + sum(itl),
        len(itl) + 1,
        200,
        "length",
        completion_tokens=len(itl) + 1,
        itl=itl,
    )


records = st.builds(
    record,
    st.floats(0, 50),
    st.floats(0.01, 5),
    st.lists(st.floats(0.01, 1), max_size=20),
    st.sampled_from(["chat", "kv"]),
)


@given(st.lists(records, max_size=20), st.floats(1, 60))
def test_windows_that_meet_count_everything_once(made: list[RequestRecord], middle: float) -> None:
    whole, left, right = (cut_window(made, *edges) for edges in ((0, 100), (0, middle), (middle, 100)))
    assert whole.finished == left.finished + right.finished == len(made)
    assert (
        whole.tokens == pytest.approx(left.tokens + right.tokens) == pytest.approx(sum(r.output_chunks for r in made))
    )
    assert sorted(whole.ttft) == sorted(left.ttft + right.ttft)
    assert sorted(whole.itl) == sorted(left.itl + right.itl)
    assert whole.busy == pytest.approx(left.busy + right.busy)


@given(st.lists(records, max_size=20))
def test_classes_sum_to_the_whole(made: list[RequestRecord]) -> None:
    parts = [cut_window(made, 0, 60, cls) for cls in ("chat", "kv")]
    assert sum(part.finished for part in parts) == cut_window(made, 0, 60).finished


def test_a_request_over_the_edge_is_split_by_its_tokens() -> None:
    made = [record(0.0, 1.0, [1.0] * 9)]  # tokens at 1, 2, ... 10
    window = cut_window(made, 4.5, 8.5)
    assert (window.tokens, window.finished, window.ttft, len(window.itl)) == (4.0, 0, [], 4)
    assert window.tokens_per_second == 1.0
    assert window.concurrency == 1.0


def test_errors_are_counted_by_kind_and_give_no_latency() -> None:
    failed = RequestRecord(1, "/v1/completions", 1.0, "kv", None, 0.5, 0, 503, error="busy", error_kind="http_5xx")
    foreign = RequestRecord(2, "/v1/completions", 1.0, "kv", None, 0.5, 0, 400, error="too long")
    window = cut_window([failed, foreign], 0, 10)
    assert window.errors == {"http_5xx": 1, "http_4xx": 1}
    assert window.e2e == []


def test_documents_are_counted_apart() -> None:
    made = [RequestRecord(i, "/tokenize", float(i), "docs", None, 0.5, 0, 200) for i in range(10)]
    window = cut_window(made, 0, 5)
    assert (window.documents, window.tokens, window.documents_per_second) == (5, 0, 1.0)
