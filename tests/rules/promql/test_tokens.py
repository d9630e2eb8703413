"""Tokens, positions and `$name`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.promql import PromqlError
from infradoc_rules.promql.tokens import (
    fill_in,
    filled,
    format_duration,
    format_number,
    parse_duration,
    tokenize,
    variables_in,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate(a[$window]) > $x", "rate(a[10000ms]) > 0.25"),
        ("a offset $window", "a offset 10000ms"),
        ("a offset -$window", "a offset -10000ms"),
        ("increase(a[$window]) / $window", "increase(a[10000ms]) / 10.0"),
        ("a > $low", "a > (-3.0)"),
        ("a[$short]", "a[1m30s]"),
        ("a > $short", "a > 90.0"),
        ('a{b="$x"} # $x', 'a{b="$x"} # $x'),
    ],
)
def test_variables_become_durations_or_numbers_by_place(text: str, expected: str) -> None:
    assert fill_in(text, {"window": 10.0, "x": 0.25, "low": -3, "short": "1m30s"}) == expected


def test_positions_are_those_of_the_text_before_filling_in() -> None:
    text = "$x + foo"
    assert [token.position for token in filled(text, {"x": 123456.0})] == [0, 3, 5]


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [("a > $y", 4, "unknown variable $y"), ("a > $bad", 4, "no duration"), ("a[$zero]", 2, "1 ms")],
)
def test_bad_variables_are_located(text: str, position: int, part: str) -> None:
    with pytest.raises(PromqlError) as caught:
        fill_in(text, {"x": 1.0, "bad": "ten", "zero": 0.0})
    assert caught.value.position == position
    assert part in str(caught.value)


def test_variables_in_skips_strings_and_comments() -> None:
    assert variables_in("a > $x and b{c='$y'} # $z") == {"x"}


@given(st.text(alphabet="ab$[](){}\"'`\\ #\n0.5msx:=~!<>+-é", max_size=60))
def test_tokens_stand_where_they_say_they_do(text: str) -> None:
    for token in tokenize(text):
        assert text[token.position : token.position + len(token.text)] == token.text


@given(st.floats(min_value=0.001, max_value=1e9))
def test_durations_survive_formatting_to_the_millisecond(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.0005000001)


@given(st.floats())
def test_numbers_survive_formatting(value: float) -> None:
    text = format_number(value).strip("()")
    back = float(text)
    assert back == value or (math.isnan(back) and math.isnan(value))
