"""Matchers and silences: parsed strictly, matched in linear time, stored and ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.alerts.database import Database
from infradoc.alerts.matchers import LABELS, Matcher, Silence, all_match, parse_matcher
from infradoc.alerts.records import add_silence, expire_silence, load_silences

PROD = {"target": "prod-1", "finding": "kv-thrashing-preemption", "severity": "warning"}


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("target=prod-1", True),
        ("target=prod", False),
        ('target="prod-1"', True),
        ("target!=prod-1", False),
        ("finding=~kv-.*", True),
        ("finding=~kv", False),
        ("finding!~kv-.*", False),
        (" severity =~ warning|critical ", True),
        ("target=", False),
    ],
)
def test_matching(text: str, hit: bool) -> None:
    assert parse_matcher(text).matches(PROD) is hit


@pytest.mark.parametrize("text", ["", "target", "host=a", "target==~(", "target=~(", "target=~(?=x)", "x" * 2000])
def test_what_is_no_matcher(text: str) -> None:
    if text == "target==~(":
        assert parse_matcher(text) == Matcher("target", "=", "=~(")
        return
    with pytest.raises(ValueError, match=r"no (matcher|label|pattern)"):
        parse_matcher(text)


@given(label=st.sampled_from(LABELS), operator=st.sampled_from(["=", "!="]), value=st.text(max_size=50))
def test_what_is_written_is_read_again(label: str, operator: str, value: str) -> None:
    made = Matcher(label, operator, value.strip())
    quoted = f'{label}{operator}"{made.value}"'
    assert parse_matcher(quoted) == made


@given(text=st.text(max_size=200))
def test_any_text_is_a_matcher_or_a_sentence(text: str) -> None:
    try:
        parse_matcher(text).matches(PROD)
    except ValueError as error:
        assert str(error)


def test_hostile_patterns_take_linear_time() -> None:
    """With a backtracking engine this one would take longer than the universe has."""
    assert not parse_matcher("target=~(a+)+$b").matches({"target": "a" * 100_000})


def test_all_of_several_and_none() -> None:
    assert all_match((), PROD)
    assert not all_match((parse_matcher("target=prod-1"), parse_matcher("severity=critical")), PROD)


def test_a_silence_holds_from_its_start_to_its_end() -> None:
    silence = Silence("s", (parse_matcher("target=prod-1"),), 10.0, 20.0)
    assert [silence.mutes(PROD, now) for now in (9.0, 10.0, 19.9, 20.0)] == [False, True, True, False]
    assert not silence.mutes({**PROD, "target": "x"}, 15.0)


def test_stored_silences(tmp_path: Path) -> None:
    database = Database(tmp_path)
    now = time.time()
    made = add_silence(database, [parse_matcher("finding=~kv-.*")], now, now + 100, "me", "why 中文")
    assert load_silences(database, now) == [made] and made.id.startswith("sil_")
    assert expire_silence(database, made.id, now + 1) and not expire_silence(database, made.id, now + 2)
    assert load_silences(database, now + 2) == []
    add_silence(database, [parse_matcher("target=a")], now + 40 * 86_400, now + 41 * 86_400, "", "")
    assert len(load_silences(database)) == 1, "those that ended a month ago are removed"
    database.close()
