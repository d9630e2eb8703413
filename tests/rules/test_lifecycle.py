"""The life of a rule as a state machine: properties over any run of conditions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.lifecycle import RuleState, step

CONDITIONS = st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=60)


def _run(conditions, for_periods=2, keep=0, period=1.0, start=1000.0):
    state, states = RuleState(), []
    for index, condition in enumerate(conditions):
        now = start + index * period
        state = step(state, condition, now, period=period, for_periods=for_periods, keep=keep)
        states.append(state)
    return states


def _names(*args, **kwargs):
    return [state.name for state in _run(*args, **kwargs)]


def test_it_waits_for_its_periods_beyond_the_first():
    assert _names([True] * 4) == ["pending", "pending", "firing", "firing"]


def test_zero_periods_fire_at_once():
    assert _names([True], for_periods=0) == ["firing"]


def test_a_gap_starts_the_wait_again():
    assert _names([True, True, False, True, True, True]) == ["pending", "pending", "ok", "pending", "pending", "firing"]


def test_it_resolves_and_then_is_ok():
    assert _names([True] * 3 + [False] * 3) == ["pending", "pending", "firing", "resolved", "ok", "ok"]


def test_it_is_kept_up_for_some_periods():
    assert _names([True] * 3 + [False] * 4, keep=2)[2:] == ["firing", "firing", "firing", "resolved", "ok"]


def test_lost_signals_are_unknown_and_firing_must_be_earned_again():
    assert _names([True] * 3 + [None] + [True] * 3) == ["pending"] * 2 + ["firing", "unknown"] + ["pending"] * 2 + [
        "firing"
    ]


def test_late_scrapes_do_not_lengthen_the_wait():
    state = RuleState()
    for now in (0.0, 0.98, 1.97):
        state = step(state, True, now, period=1.0, for_periods=2, keep=0)
    assert state.name == "firing"


@given(CONDITIONS, st.integers(0, 5), st.integers(0, 5))
def test_none_is_always_unknown_and_nothing_else_is(conditions, for_periods, keep):
    for condition, state in zip(conditions, _run(conditions, for_periods, keep), strict=True):
        assert (state.name == "unknown") == (condition is None)


@given(CONDITIONS, st.integers(0, 5), st.integers(0, 5))
def test_firing_needs_an_unbroken_run_of_truth(conditions, for_periods, keep):
    names = [state.name for state in _run(conditions, for_periods, keep)]
    for index, name in enumerate(names):
        if name == "firing" and (index == 0 or names[index - 1] != "firing"):
            assert all(conditions[index - for_periods : index + 1])
            assert index >= for_periods


@given(CONDITIONS, st.integers(0, 5), st.integers(0, 5))
def test_every_state_has_a_way_out(conditions, for_periods, keep):
    calm = [False] * (keep + 3)
    assert _run(conditions + calm, for_periods, keep)[-1].name == "ok"


@given(CONDITIONS, st.integers(0, 5), st.integers(0, 5))
def test_resolved_only_follows_firing(conditions, for_periods, keep):
    names = ["ok"] + [state.name for state in _run(conditions, for_periods, keep)]
    for before, after in pairwise(names):
        if after == "resolved":
            assert before == "firing"


@given(CONDITIONS, st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.5, 1.0, 15.0]))
def test_the_length_of_a_period_does_not_matter(conditions, for_periods, keep, period):
    assert _names(conditions, for_periods, keep, period) == _names(conditions, for_periods, keep)


@given(CONDITIONS)
def test_since_marks_the_last_change(conditions):
    states = _run(conditions)
    for before, after in pairwise(states):
        assert (before.name == after.name) == (before.since == after.since)
