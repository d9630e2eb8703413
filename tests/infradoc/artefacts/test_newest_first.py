"""Exports of dashboards, which put the newest line first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.gather import gather
from infradoc.artefacts.newest_first import oldest_first

LOG = [f"INFO 06-01 10:{minute:02}:00 [x.py:1] line {minute}" for minute in range(10)]
TRACE = [
    "Traceback (most recent call last):",
    '  File "/a/b.py", line 3, in load_model',
    "    raise ValueError(",
    "ValueError: no",
]


def test_falling_stamps_are_turned_round():
    assert oldest_first(LOG[::-1]) == LOG


def test_lines_in_order_stay():
    assert oldest_first(LOG) is None
    assert oldest_first([*LOG, *TRACE]) is None


def test_a_record_of_several_lines_stays_as_it_stands():
    log = [*LOG[:5], *TRACE, *LOG[5:]]
    newest = [*LOG[5:][::-1], LOG[4], *TRACE, *LOG[:4][::-1]]
    assert oldest_first(newest) == log


def test_a_traceback_upside_down_is_turned_with_the_lines():
    log = [*LOG[:5], *TRACE, *LOG[5:]]
    assert oldest_first(log[::-1]) == log


def test_a_traceback_upside_down_is_proof_where_few_lines_have_a_stamp():
    log = [LOG[0], *TRACE]
    assert oldest_first(log[::-1]) == log


def test_two_logs_one_behind_the_other_and_merged_ones_stay():
    assert oldest_first(LOG[5:] + LOG[:5]) is None
    assert oldest_first([line for pair in zip(LOG, LOG[::-1], strict=True) for line in pair]) is None


def test_a_page_that_quotes_few_stamped_lines_stays():
    assert oldest_first([text for line in LOG[::-1] for text in (line, "words", "words", "words")]) is None


def test_it_is_said_in_the_report(tmp_path):
    path = tmp_path / "export.txt"
    path.write_text("\n".join(LOG[::-1]))
    assert "newest line first" in " ".join(gather(path).notes.sentences())
    path.write_text("\n".join(LOG))
    assert not gather(path).notes.sentences()


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from([*LOG, *TRACE])), max_size=40))
def test_no_line_is_lost(lines):
    turned = oldest_first(lines)
    assert turned is None or sorted(turned) == sorted(lines)
