"""Names that were meant: half names, slips, and words that mean nothing here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.knobs import knob_table
from infradoc_rules.near import near, nearest, slip_of
from infradoc_rules.vocabulary import finding_ids

KNOBS = tuple(knob_table().by_name)
NAMES = (*KNOBS, *finding_ids())


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("ulr", ("url", "log", "system"), "url"),  # two swapped letters are most that a short name can lose
        ("tokn_env", ("token_env", "token_file"), "token_env"),
        ("kv-trash", ("kv-thrashing-preemption", "kv-leak", "kv-trash-bin"), "kv-trash-bin"),  # half a name comes first
        ("soon", ("url", "log", "system"), ""),
        ("", ("url", "log"), ""),
        ("url", (), ""),
    ],
)
def test_the_name_that_was_meant(name, known, meant):
    assert near(name, known) == meant


@given(st.sampled_from(NAMES), st.data())
def test_a_name_that_lost_a_letter_finds_itself_again(name, data):
    at = data.draw(st.integers(0, len(name) - 1))
    lost = name[:at] + name[at + 1 :]
    assert near(lost, (name, "zzz")) == name and slip_of(lost, (name, "zzz")) == name


@given(st.text(max_size=40), st.integers(1, 4))
def test_only_known_names_are_offered_and_never_more_than_asked(name, most):
    found = nearest(name, NAMES, most)
    assert len(found) <= most and len(set(found)) == len(found) and set(found) <= set(NAMES)
    assert slip_of(name, NAMES) in {"", *NAMES}


def test_names_that_share_a_word_are_near_and_no_slips():
    assert near("enable-lora", ["enable-metrics"]) == "enable-metrics"
    assert slip_of("enable-lora", ["enable-metrics"]) == ""
    assert slip_of("max_num_seq", KNOBS) == "max_num_seqs"
