"""Go's float rules, against C's as numpy shows them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.promql import arithmetic as go

FLOATS = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, math.inf, -math.inf, math.nan])
)


def same(x: float, y: float) -> bool:
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return math.isclose(x, y, rel_tol=1e-12) and math.copysign(1, x) == math.copysign(1, y)


@given(FLOATS, FLOATS)
def test_operators(x: float, y: float) -> None:
    with np.errstate(all="ignore"):
        assert same(go.divide(x, y), float(np.divide(x, y)))
        assert same(go.modulo(x, y), float(np.fmod(x, y)))
        if y != 0.5:  # there numpy takes the root, which differs from C's pow for -0.0 and -Inf
            assert same(go.power(x, y), float(np.power(x, y)))


@given(FLOATS)
def test_functions(x: float) -> None:
    with np.errstate(all="ignore"):
        assert same(go.exp(x), float(np.exp(x)))
        assert same(go.square_root(x), float(np.sqrt(x)))
        assert same(go.floor(x), float(np.floor(x)))
        assert same(go.ceil(x), float(np.ceil(x)))
        assert same(go.ln(x), float(np.log(x)))
        assert same(go.log2(x), float(np.log2(x)))
        assert same(go.log10(x), float(np.log10(x)))
        assert same(go.sign(x), x if x == 0 else float(np.sign(x)))


def test_infinity_beats_nan_in_min_and_max() -> None:
    assert go.larger(math.nan, math.inf) == math.inf
    assert go.smaller(-math.inf, math.nan) == -math.inf
    assert math.isnan(go.larger(math.nan, -math.inf))
    assert math.isnan(go.smaller(math.nan, 1.0))


def test_the_compensated_sum_keeps_what_a_plain_one_loses() -> None:
    assert go.compensated_sum([1.0, 1e100, 1.0, -1e100]) == 2.0
    assert go.compensated_sum([math.inf, 1.0]) == math.inf
    assert math.isnan(go.compensated_sum([math.inf, -math.inf]))


@given(st.floats(0, 1), st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_quantile_is_numpys_and_within_bounds(q: float, values: list[float]) -> None:
    result = go.quantile(q, values)
    assert result == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-6)
    assert min(values) - 1e-6 <= result <= max(values) + 1e-6


def test_quantile_edges() -> None:
    assert go.quantile(-0.1, [1.0]) == -math.inf
    assert go.quantile(1.1, [1.0]) == math.inf
    assert math.isnan(go.quantile(0.5, []))
    assert math.isnan(go.quantile(math.nan, [1.0]))
    assert go.quantile(1.0, [3.0, math.nan, 2.0]) == 3.0
    assert math.isnan(go.quantile(0.0, [3.0, math.nan, 2.0]))
