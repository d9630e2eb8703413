"""Every part of the subset against a real Prometheus, on random series.

The series have what real ones have: counter resets, gaps, irregular intervals, NaN, infinities, stale markers,
broken histograms. An expression that fails in Prometheus must fail here too.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from infradoc_rules.model import Series
from infradoc_rules.promql import SUBSET, Element, PromqlError, evaluate, parse
from infradoc_rules.promql.tokens import tokenize

START = 1_700_000_000.0
SECONDS = 900
TOLERANCE = 1e-9

# On a sample, 1 ms beside one, between two, in a long gap, at the end, and around the end of the 300 s lookback.
TIMES = [START + offset for offset in (0.0, 121.0, 300.001, 450.999, 620.5004, 899.0, 1199.0, 1199.001)]

RANGES = ("10s", "1m", "7m30s")
COUNTERS = ("requests_total", "errors_total")
GAUGES = ("load", "wild", "sparse", "flaky", "steady", "extreme", "cancelling")


@dataclass
class Tally:
    """What was compared."""

    comparisons: int = 0
    elements: int = 0
    errors: int = 0
    worst: float = 0.0
    names: set[str] = field(default_factory=set)


def range_queries() -> Iterator[str]:
    arguments = {"quantile_over_time": "0.3, "}
    for function in sorted(SUBSET.range_functions):
        lead = arguments.get(function, "")
        for name, span in itertools.product((*COUNTERS, *GAUGES), RANGES):
            yield f"{function}({lead}{name}[{span}])"
        yield f'{function}({lead}load{{job="api",instance!~".*-[2-5]"}}[45s] offset 1m1ms)'
        yield f'{function}({lead}requests_total{{job!="api",instance=~"db-.|batch-1"}}[30s500ms] offset -20s)'
        yield f'{function}({lead}nothing{{job="api",code=~"5.."}}[1m])'
        yield f"{function}({lead}once[10m])"
    for q in ("-1", "0", "1", "1.5", "NaN", "scalar(once)"):
        yield f"quantile_over_time({q}, wild[1m])"


def vector_queries() -> Iterator[str]:
    simple = sorted(SUBSET.vector_functions - {"clamp", "clamp_min", "clamp_max", "histogram_quantile"})
    for function, name in itertools.product(
        simple, (*COUNTERS, *GAUGES, "once", "nothing", "rate(requests_total[1m])")
    ):
        yield f"{function}({name})"
    for name in (*GAUGES, "once"):
        yield from (f"round({name}, {nearest})" for nearest in ("0.5", "10", "0", "-3", "1e-3"))
        yield from (
            f"clamp({name}, {a}, {b})" for a, b in (("10", "60"), ("60", "10"), ("-Inf", "NaN"), ("NaN", "Inf"))
        )
        yield from (f"{f}({name}, {edge})" for f in ("clamp_min", "clamp_max") for edge in ("40", "NaN", "Inf", "-Inf"))
        yield from (f"-{name}", f"{name} offset 3m", f"{name} offset -2m", f"vector(scalar({name}{{instance='db-1'}}))")
    yield from (
        "time()",
        "vector(time())",
        "timestamp(timestamp(load))",
        "timestamp(load offset 17s)",
        "timestamp(-load)",
    )
    yield from ("timestamp((sparse))", "absent((nothing{a='b',a='c',d='e',f!='g'}))", "absent(sum(nothing))")
    yield from ("scalar(load) + 1", "1 / 0", "-1 / 0", "0 / 0", "-(2 ^ 3)", "-2 ^ 2", "2 ^ 3 ^ 2", "7 % -3", "-7 % 3")
    yield from ("vector(0 ^ -1)", "vector(-8 ^ (1 / 3))", "vector((-8) ^ (1 / 3))", "vector(10 ^ 400)", "vector(5 % 0)")
    for q in ("-1", "0", "0.5", "0.9", "0.99", "1", "2", "NaN"):
        yield f"histogram_quantile({q}, latency_bucket)"
        yield f"histogram_quantile({q}, rate(latency_bucket[1m]))"
        yield f"histogram_quantile({q}, sum by (le, job) (increase(latency_bucket[2m])))"
    yield "histogram_quantile(0.9, load)"
    yield "histogram_quantile(0.5, latency_bucket or label_replace(latency_bucket, '__name__', 'b', 'le', '.*'))"
    yield from label_queries()


def label_queries() -> Iterator[str]:
    for target, text, source, pattern in (
        ("shard", "$1", "instance", ".*-(.*)"),
        ("shard", "${job}-$$-${2}$1x", "instance", "(?P<job>[a-z]+)-(.)"),
        ("job", "", "job", "api"),
        ("job", "same", "job", ".*"),
        ("instance", "x", "instance", "db-.*"),
        ("__name__", "renamed_$1", "job", "(.*)"),
        ("shard", "$0", "nothing", ""),
        ("shard", "$1", "instance", "api"),
    ):
        yield f'label_replace(load, "{target}", "{text}", "{source}", "{pattern}")'
        yield f'sum by (shard) (label_replace(errors_total, "{target}", "{text}", "{source}", "{pattern}"))'
    for target, rest in (
        ("both", '"-", "job", "instance"'),
        ("job", '"", "none"'),
        ("job", '","'),
        ("x", '"/", "job"'),
    ):
        yield f'label_join(load, "{target}", {rest})'
    yield 'label_join(load, "instance", "", "job")'


def aggregation_queries() -> Iterator[str]:
    groupings = ("", "by (job)", "by (job, none)", "without (instance)", "by (__name__)", "by ()", "without ()")
    params = {"topk": ("2", "0", "100"), "bottomk": ("2", "-1", "3.9"), "quantile": ("0.37", "-1", "NaN", "1")}
    names = ("load", "wild", "flaky", "errors_total", "nothing", "deriv(load[30s])")
    for op, grouping, name in itertools.product(sorted(SUBSET.aggregations - {"count_values"}), groupings, names):
        if op.endswith("k") and name in ("wild", "errors_total"):
            continue  # which of several equal values a k picks is chance in Prometheus as well
        for param in params.get(op, ("",)):
            lead = f"{param}, " if param else ""
            yield f"{op} {grouping} ({lead}{name})"
    for grouping, name in itertools.product(groupings, ("steady", "wild{instance=~'.*-1'}", "extreme", "build_info")):
        yield f'count_values {grouping} ("value", {name})'
    yield 'count_values("job", steady)'
    yield 'count_values without (value) ("value", steady)'
    yield from ("topk(1e30, load)", "topk(NaN, load)", "topk(scalar(once), load)", "quantile(0.5, extreme)")
    yield from (
        "stddev(once)",
        "stdvar(wild{instance='api-1'})",
        "sum(latency_bucket)",
        "avg(extreme)",
        "SUM BY (job) (load)",
    )


def operator_queries() -> Iterator[str]:
    pairs = (("load", "requests_total"), ("wild", "flaky"), ("extreme", "steady"), ("requests_total", "requests_total"))
    plain = sorted(SUBSET.arithmetic | SUBSET.comparisons)
    with_bool = [f"{op} bool" for op in sorted(SUBSET.comparisons)]
    for op, (left, right) in itertools.product((*plain, *with_bool), pairs):
        yield f"{left} {op} {right}"
        yield f"{left} {op} 40"
        yield f"0 {op} {right}"
        yield f"{left} {op} on (instance) {right}"
        yield f"{left} {op} ignoring (job) {right}"
        yield f"{left} {op} on (job, instance) group_left {right}"
        yield f"{left} {op} ignoring (version) group_left (version) build_info"
        yield f"sum by (job) ({left}) {op} on (job) group_right () {right}"
        yield f"{left} {op} on (job) {right}"
        yield f"{left} {op} ignoring (instance) group_left sum by (job) ({right})"
        yield f"1.5 {op.removesuffix(' bool') if op in SUBSET.arithmetic else op.removesuffix(' bool') + ' bool'} 0"
    for op, (left, right) in itertools.product(sorted(SUBSET.set_operators), pairs):
        yield f"{left} {op} {right}"
        yield f"{left} > 50 {op} {right} < 30"
        yield f"{left} {op} on (job) {right} > 60"
        yield f"{left} {op} ignoring (instance, job) nothing"
        yield f"nothing {op} on () {right}"
        yield f"sum by (job) ({left}) {op} ignoring (instance) {right}"
    yield from (
        "-(load or wild)",
        "abs(load or wild)",
        "rate(requests_total[1m]) * on (job) group_left (version) build_info",
    )
    yield "load * on (instance) group_left (__name__) build_info"
    yield "load * on (instance) group_left (job) label_replace(build_info, 'job', 'x', 'version', 'v.')"
    yield "load + on (__name__) load"
    yield "load == ignoring (__name__) load"


def composed_queries(rng: random.Random, count: int) -> Iterator[str]:
    """Shapes that rules use, and random nests of them."""

    def vector(depth: int) -> str:
        if depth == 0:
            name = rng.choice((*COUNTERS, "load", "flaky", "sparse", "steady"))
            function = rng.choice(("rate", "increase", "avg_over_time", "max_over_time", "delta", "changes"))
            return rng.choice(
                (name, f"{function}({name}[{rng.choice(RANGES)}])", f"{name} offset {rng.choice(RANGES)}")
            )
        left, right = vector(depth - 1), vector(depth - 1)
        return rng.choice(
            (
                f"sum by (job) ({left}) {rng.choice('+-*/')} sum by (job) ({right})",
                f"({left}) {rng.choice(('and', 'or', 'unless'))} on (job, instance) ({right})",
                f"({left}) > {rng.choice(('', 'bool '))}{rng.uniform(-5, 60):.3f}",
                f"max without (instance) ({left})",
                f"clamp_max(abs({left}), 100) / {rng.randint(0, 3)}",
                f"({left}) / on (job, instance) ({right})",
                f"-({left}) * 2",
            )
        )

    for _ in range(count):
        yield vector(rng.randint(1, 3))


def _key(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _error(mine: float, theirs: float) -> float:
    """Relative error; 0 for two NaN or two equal infinities."""
    if mine == theirs or (math.isnan(mine) and math.isnan(theirs)):
        return 0.0
    error = abs(mine - theirs) / abs(theirs) if theirs else math.inf
    return math.inf if math.isnan(error) else error


def _compare(query: str, at: float, answer: dict[str, Any], frame: Any, tally: Tally) -> str | None:
    """One sentence about the difference, None when there is none."""
    tally.comparisons += 1
    try:
        mine = evaluate(parse(query), frame, at)
    except PromqlError as error:
        tally.errors += 1
        return None if answer.get("errorType") == "execution" else f"{error}, Prometheus answers {answer}"
    if answer["status"] != "success":
        return f"Prometheus refuses it: {answer}"
    if answer["data"]["resultType"] == "scalar":
        theirs = [Element({}, float(answer["data"]["result"][1]))]
        mine = (Element({}, mine),) if isinstance(mine, float) else mine
    else:
        theirs = [Element(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]
    assert not isinstance(mine, float), f"{query} is a scalar here and a vector in Prometheus"
    expected, actual = {_key(e.labels): e.value for e in theirs}, {_key(e.labels): e.value for e in mine}
    if expected.keys() != actual.keys() or len(mine) != len(theirs):
        return f"labels differ: {sorted(map(sorted, expected.keys() ^ actual.keys()))[:4]}"
    for key, value in expected.items():
        off = _error(actual[key], value)
        tally.worst = max(tally.worst, off)
        if off > TOLERANCE:
            return f"{sorted(key)}: {actual[key]!r}, Prometheus says {value!r}"
    in_order = all(_error(a.value, b.value) <= TOLERANCE for a, b in zip(mine, theirs, strict=True))
    if query.startswith("sort") and not in_order:
        return "the order differs"
    tally.elements += len(mine)
    if mine:
        tally.names |= {token.text.lower() for token in tokenize(query)}
    return None


def test_every_part_of_the_subset_agrees_with_prometheus(
    prometheus: Any, random_series: Callable[[random.Random, float, int], list[Series]], make_frame: Callable[..., Any]
) -> None:
    rng = random.Random(20_240_607)
    series = random_series(rng, START, SECONDS)
    assert len(series) >= 200
    prometheus.write(series)
    frame = make_frame(*series)
    queries = [
        *range_queries(),
        *vector_queries(),
        *aggregation_queries(),
        *operator_queries(),
        *composed_queries(rng, 150),
    ]
    tally, differences = Tally(), []
    for number, query in enumerate(dict.fromkeys(queries)):
        for at in (TIMES[(number + step) % len(TIMES)] for step in (0, 2, 3, 5)):
            difference = _compare(query, at, prometheus.query(query, at), frame, tally)
            if difference is not None:
                differences.append(f"{query} at {at - START:+.3f}: {difference}")
    print(
        f"\n{len(series)} series, {tally.comparisons} comparisons, {tally.elements} values,"
        f" {tally.errors} errors alike, worst relative error {tally.worst:.2g}"
    )
    assert not differences, f"{len(differences)} differences:\n" + "\n".join(differences[:40])
    missing = SUBSET.names() - tally.names
    assert not missing, f"never compared with a non-empty result: {sorted(missing)}"
    assert tally.errors > 50, "matching errors were not compared"


@pytest.mark.parametrize("at", [START + 899 + 300, START + 899 + 300.001])
def test_the_lookback_edge_was_really_tested(at: float, make_frame: Callable[..., Any]) -> None:
    frame = make_frame(Series("load", {}, [START, START + 899], [1.0, 2.0]))
    assert bool(evaluate(parse("load"), frame, at)) is (at == START + 1199)
