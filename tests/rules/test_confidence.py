"""Log odds to probabilities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.confidence import confidence

WEIGHTS = st.lists(st.floats(-5, 5), max_size=6)


def test_even_odds_are_a_half():
    assert confidence(0.0, []) == 0.5
    assert confidence(-1.5, [1.5]) == 0.5


def test_a_known_value():
    assert confidence(1.0, [1.0, 0.2]) == pytest.approx(0.9002495, abs=1e-6)


@given(st.floats(-100, 100), WEIGHTS)
def test_it_is_a_probability(prior, weights):
    assert 0.0 < confidence(prior, weights) < 1.0


@given(st.floats(-5, 5), WEIGHTS, st.floats(0.01, 5))
def test_a_sign_for_it_never_lowers_it(prior, weights, weight):
    assert confidence(prior, [*weights, weight]) >= confidence(prior, weights)
    assert confidence(prior, [*weights, -weight]) <= confidence(prior, weights)


@given(st.floats(-5, 5), WEIGHTS)
def test_against_mirrors_for(prior, weights):
    assert confidence(-prior, [-weight for weight in weights]) == pytest.approx(1 - confidence(prior, weights))
