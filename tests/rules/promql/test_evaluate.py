"""Whole expressions: names that stay or go, matching, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.model import Series
from infradoc_rules.promql import Element, PromqlError, evaluate, parse

T = 1_700_000_000.0


def ramp(name: str, slope: float, start: float = 0.0, **labels: str) -> Series:
    """Sixty samples, one a second, the last at T."""
    times = [T - 59 + second for second in range(60)]
    return Series(name, labels, times, [start + slope * second for second in range(60)])


@pytest.fixture(scope="module")
def frame(make_frame: Callable[..., Any]) -> Any:
    return make_frame(
        ramp("requests_total", 2, job="api", code="200"),
        ramp("requests_total", 1, job="api", code="500"),
        ramp("requests_total", 4, job="db", code="200"),
        ramp("usage", 0, 0.5, job="api"),
        ramp("usage", 0, 0.9, job="db"),
        ramp("up", 0, 1, job="api", version="v1"),
    )


CASES: list[tuple[str, Any]] = [
    ("1 + 2 * 3", 7.0),
    ("time()", T),
    ("2 > bool 1", 1.0),
    ("scalar(usage)", math.nan),
    ("scalar(usage{job='db'})", 0.9),
    ("usage > 0.7", [({"__name__": "usage", "job": "db"}, 0.9)]),
    ("usage > bool 0.7", [({"job": "api"}, 0.0), ({"job": "db"}, 1.0)]),
    ("0.7 < usage", [({"__name__": "usage", "job": "db"}, 0.9)]),
    ("-usage{job='db'}", [({"job": "db"}, -0.9)]),
    ("rate(requests_total{code='500'}[10s])", [({"job": "api", "code": "500"}, 1.0)]),
    ("last_over_time(usage{job='db'}[10s])", [({"__name__": "usage", "job": "db"}, 0.9)]),
    ("sum(rate(requests_total[$window]))", [({}, 7.0)]),
    ("sum by (job) (rate(requests_total[10s]))", [({"job": "api"}, 3.0), ({"job": "db"}, 4.0)]),
    ("sum without (code) (rate(requests_total[10s]))", [({"job": "api"}, 3.0), ({"job": "db"}, 4.0)]),
    ("count by (__name__) (usage)", [({"__name__": "usage"}, 2.0)]),
    ("topk(1, usage)", [({"__name__": "usage", "job": "db"}, 0.9)]),
    ("bottomk by (job) (1, usage)", [({"__name__": "usage", "job": j}, v) for j, v in (("api", 0.5), ("db", 0.9))]),
    ("quantile(0.5, usage)", [({}, 0.7)]),
    ('count_values("v", usage)', [({"v": "0.5"}, 1.0), ({"v": "0.9"}, 1.0)]),
    ("usage and on (job) up", [({"__name__": "usage", "job": "api"}, 0.5)]),
    ("usage unless on (job) up", [({"__name__": "usage", "job": "db"}, 0.9)]),
    (
        "up or usage{job='db'}",
        [({"__name__": "up", "job": "api", "version": "v1"}, 1.0), ({"__name__": "usage", "job": "db"}, 0.9)],
    ),
    ("usage * on (job) group_left (version) up", [({"job": "api", "version": "v1"}, 0.5)]),
    ("usage / ignoring (version) up", [({"job": "api"}, 0.5)]),
    ("usage == on (job) usage", [({"job": "api"}, 0.5), ({"job": "db"}, 0.9)]),
    ("usage + up", []),
    ("absent(nothing{job='x',code=~'5..'})", [({"job": "x"}, 1.0)]),
    ("absent(usage)", []),
    ("absent_over_time(nothing[1m])", [({}, 1.0)]),
    ("vector(1) / 0", [({}, math.inf)]),
    ("vector(0) / 0", [({}, math.nan)]),
    ("timestamp(usage{job='db'} offset 10s)", [({"job": "db"}, T - 10)]),
    ("sort_desc(usage)", [({"__name__": "usage", "job": "db"}, 0.9), ({"__name__": "usage", "job": "api"}, 0.5)]),
    (
        'label_replace(up, "v", "${1}x$$", "version", "v(.)")',
        [({"__name__": "up", "job": "api", "version": "v1", "v": "1x$"}, 1.0)],
    ),
    (
        'label_join(up, "version", "-", "job", "version")',
        [({"__name__": "up", "job": "api", "version": "api-v1"}, 1.0)],
    ),
    ("round(usage{job='db'} * 7.5, 0.5)", [({"job": "db"}, 7.0)]),
    ("clamp(usage, 1, 0)", []),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_values_and_labels(frame: Any, text: str, expected: Any) -> None:
    result = evaluate(parse(text), frame, T, 10.0)
    if isinstance(expected, float):
        assert result == pytest.approx(expected, nan_ok=True)
        return
    assert isinstance(result, tuple)
    assert [labels for labels, _ in result] == [labels for labels, _ in expected]
    assert [value for _, value in result] == pytest.approx([value for _, value in expected], nan_ok=True)


ERRORS = [
    ("requests_total / on (job) usage", "many-to-one matching must be explicit"),
    ("usage / on (job) requests_total", 'found duplicate series for the match group {job="api"} on the right'),
    ("requests_total * on (job) group_right () usage", 'match group {job="api"} on the left'),
    ("usage * on (job) group_left (code) requests_total", "many-to-many matching not allowed"),
    ("requests_total * on (job) group_left (code) up", None),
    ("requests_total{job='api'} * ignoring (code, version) group_left (code) up", "grouping labels must ensure unique"),
    ("-(usage or on (__name__) label_replace(usage, '__name__', 'x', '', ''))", 'same labelset: {job="api"}'),
    ("label_replace(usage, 'job', 'same', 'job', '.*')", 'same labelset: usage{job="same"}'),
    ("topk(1e30, usage)", "64-bit"),
]


@pytest.mark.parametrize(("text", "part"), ERRORS, ids=[text for text, _ in ERRORS])
def test_errors_name_the_labels(frame: Any, text: str, part: str | None) -> None:
    expr = parse(text)
    with pytest.raises(PromqlError) as caught:
        evaluate(expr, frame, T)
    assert (part or "grouping labels must ensure unique") in caught.value.message
    assert caught.value.text == text


def test_an_open_window_needs_a_value(frame: Any) -> None:
    expr = parse("rate(requests_total[$window])")
    with pytest.raises(PromqlError, match=r"\$window has no value") as caught:
        evaluate(expr, frame, T)
    assert caught.value.position == 20
    assert evaluate(expr, frame, T, 10.0) == evaluate(parse("rate(requests_total[10s])"), frame, T)
    assert evaluate(expr, frame, T, 2.0) != evaluate(expr, frame, T, 0.5)


def test_the_frame_is_left_as_it_was(make_frame: Callable[..., Any]) -> None:
    series = ramp("usage", 0, 1, job="api")
    result = evaluate(parse("usage"), make_frame(series), T)
    assert isinstance(result, tuple)
    result[0].labels["job"] = "changed"
    rated = evaluate(parse("rate(usage[10s])"), make_frame(series), T)
    assert rated == (Element({"job": "api"}, 0.0),)
    rated[0].labels["job"] = "changed"
    assert series.labels == {"job": "api"}


VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=12)


@given(VALUES)
def test_aggregations_keep_their_bounds(make_frame: Callable[..., Any], values: list[float]) -> None:
    frame = make_frame(*(Series("a", {"n": str(n)}, [T], [value]) for n, value in enumerate(values)))

    def one(text: str) -> float:
        result = evaluate(parse(text), frame, T)
        assert isinstance(result, tuple) and len(result) == 1
        return result[0].value

    low, high = min(values), max(values)
    assert (one("min(a)"), one("max(a)"), one("count(a)")) == (low, high, len(values))
    assert one("sum(a)") == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-3)
    for text in ("avg(a)", "quantile(0.25, a)", "quantile(0.99, a)"):
        assert low - 1e-3 <= one(text) <= high + 1e-3
    assert one("stddev(a)") <= (high - low) / 2 + 1e-3
    assert evaluate(parse("sum(topk(100, a)) == sum(bottomk(100, a)) or vector(-1)"), frame, T) is not None


@given(VALUES, st.floats(-1e9, 1e9))
def test_a_comparison_and_its_opposite_share_the_vector_out(
    make_frame: Callable[..., Any], values: list[float], limit: float
) -> None:
    frame = make_frame(*(Series("a", {"n": str(n)}, [T], [value]) for n, value in enumerate(values)))
    above = evaluate(parse("a > $limit", {"limit": limit}), frame, T)
    rest = evaluate(parse("a unless (a > $limit)", {"limit": limit}), frame, T)
    assert isinstance(above, tuple) and isinstance(rest, tuple)
    assert sorted(value for _, value in above + rest) == sorted(values)
    assert all(value <= limit for _, value in rest)
