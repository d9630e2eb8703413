"""The knob table: bounds, types, names; and that it agrees with the canonical one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.knobs import KNOBS, KnobError, find
from infradoc_rules.knobs import knob_table


def test_names_and_changes_are_canonical() -> None:
    table = knob_table()
    for knob in KNOBS.values():
        assert knob.name in table
        assert table.live("infradoc", knob.name) == (knob.change == "live"), knob.name
        assert table.flag("infradoc", knob.name) == knob.flag


@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: knob.name)
def test_default_and_bounds_are_valid(knob: object) -> None:
    assert isinstance(knob, type(KNOBS["watermark"]))
    assert knob.check(knob.default) == knob.default
    for bound in knob.bounds:
        assert knob.check(bound) == bound


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers())))
def test_check_gives_a_value_in_bounds_or_one_sentence(value: object) -> None:
    for knob in KNOBS.values():
        try:
            checked = knob.check(value)
        except KnobError as error:
            assert str(error).startswith(knob.name) and str(error).endswith(".")
            continue
        if knob.kind in ("int", "float") and checked is not None:
            low, high = knob.bounds
            assert low <= checked <= high  # type: ignore[operator]
            assert isinstance(checked, int if knob.kind == "int" else float) and not isinstance(checked, bool)


def test_whole_floats_are_whole_numbers() -> None:
    assert KNOBS["max_num_seqs"].check(8.0) == 8
    with pytest.raises(KnobError, match="whole number"):
        KNOBS["max_num_seqs"].check(8.5)


def test_what_was_sent_is_quoted_in_few_words() -> None:
    nested: list[object] = []
    for _ in range(5000):  # deeper than repr goes
        nested = [nested]
    for value in (nested, "x" * 50_000, list(range(10_000)), 10**4000):
        for knob in KNOBS.values():
            if knob.kind != "str":
                with pytest.raises(KnobError) as refused:
                    knob.check(value)
                assert len(str(refused.value)) < 300
    with pytest.raises(KnobError) as refused:
        find("x" * 50_000)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("wrong", ["max_num_seq", "max_nun_seqs", "max-num-seqs"])
def test_misspelt_names_get_the_nearest(wrong: str) -> None:
    with pytest.raises(KnobError, match="did you mean max_num_seqs"):
        find(wrong)


def test_a_name_like_none_lists_them_all() -> None:
    with pytest.raises(KnobError, match="valid knobs: max_num_seqs"):
        find("zzz")
