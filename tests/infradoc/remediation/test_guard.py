from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.remediation.guard import Guard, direction
from infradoc.remediation.journal import NEVER_SENT, ChangeRecord, Entry

Make = Callable[..., ChangeRecord]


def test_cooldown_then_same_direction_then_reverse(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0)], cooldown=300, reverse=1800)
    assert "In cooldown" in (guard.refusal("max_num_seqs", 8, 4, 1299.0) or "")
    assert guard.refusal("max_num_seqs", 8, 4, 1301.0) is None
    assert "reverse" in (guard.refusal("max_num_seqs", 8, 12, 1301.0) or "")
    assert guard.refusal("max_num_seqs", 8, 12, 2801.0) is None


def test_other_knobs_are_free(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0)])
    assert guard.refusal("kv_pool_tokens", 384, 1536, 1001.0) is None


def test_what_was_taken_back_is_not_tried_again_soon(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0, "undone")], cooldown=300, reverse=1800)
    assert "taken back" in (guard.refusal("max_num_seqs", 16, 8, 1400.0) or "")
    assert guard.refusal("max_num_seqs", 16, 24, 1400.0) is None


def test_a_change_that_failed_binds_nobody(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0, "failed")])
    assert guard.refusal("max_num_seqs", 16, 24, 1001.0) is None


def test_a_clock_set_back_does_not_open_the_guard(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0)])
    assert guard.refusal("max_num_seqs", 8, 16, 10.0) is not None


@pytest.mark.parametrize(("one", "other"), [("reject", "left"), (True, False), (1, 2), (None, 5)])
def test_there_and_back_are_two_directions(one: Any, other: Any) -> None:
    assert direction(one, other) == -direction(other, one)


@given(
    st.lists(st.tuples(st.floats(0, 400), st.sampled_from([4, 8, 16, 32])), max_size=60),
    st.floats(1, 500),
    st.floats(500, 3000),
)
def test_no_knob_is_pushed_to_and_fro(wishes: list[tuple[float, int]], cooldown: float, reverse: float) -> None:
    """Whatever two rules wish, and whenever: changes keep the cooldown, and turns the longer one."""
    now, value = 0.0, 16
    made: list[ChangeRecord] = []
    for wait, wish in wishes:
        now += wait
        if wish == value or Guard(made, cooldown, reverse).refusal("k", value, wish, now) is not None:
            continue
        entry = Entry("applied", str(len(made)), now, "t", "k", value, wish)
        made.append(ChangeRecord(entry, entry, None))
        value = wish
    for earlier, later in pairwise(made):
        gap = later.last.time - earlier.last.time
        assert gap >= cooldown
        if direction(earlier.intent.old, earlier.intent.new) != direction(later.intent.old, later.intent.new):
            assert gap >= reverse


def test_a_change_that_was_never_sent_binds_nobody(make_change: Make) -> None:
    """The process was killed between the journal and the engine; undo found the old value there."""
    change = make_change("max_num_seqs", 16, 8, 1000.0, "undone")
    never = replace(change, last=replace(change.last, note=NEVER_SENT))
    assert Guard([never]).refusal("max_num_seqs", 16, 8, 1001.0) is None
    assert Guard([change]).refusal("max_num_seqs", 16, 8, 1001.0) is not None


def test_a_refusal_knows_when_it_ends_and_tells_the_time_that_is_left(make_change: Make) -> None:
    guard = Guard([make_change("max_num_seqs", 16, 8, 1000.0)], cooldown=300, reverse=1800)
    cooling = guard.refusal("max_num_seqs", 8, 4, 1100.0)
    assert cooling is not None and cooling.until == 1300.0 and "200 s" in cooling
    assert "changed 250 s ago (16 -> 8), next change in 50 s" in cooling.told(1250.0)
    turning = guard.refusal("max_num_seqs", 8, 16, 1400.0)
    assert turning is not None and turning.until == 2800.0 and "in 1400 s" in turning
    assert guard.refusal("max_num_seqs", 8, 4, cooling.until) is None
    assert guard.refusal("max_num_seqs", 8, 16, turning.until) is None


def test_a_process_that_was_started_since_is_bound_by_nothing(make_change: Make) -> None:
    change = make_change("max_num_seqs", 16, 8, 1000.0)
    bound = replace(change, intent=replace(change.intent, started=500.0))
    assert Guard([bound], started=501.0).refusal("max_num_seqs", 8, 4, 1001.0) is not None  # the same, told roughly
    assert Guard([bound], started=1000.5).refusal("max_num_seqs", 8, 4, 1001.0) is None
    assert Guard([bound], started=None).refusal("max_num_seqs", 8, 4, 1001.0) is not None  # nobody tells: it may be
    assert Guard([change], started=1000.5).refusal("max_num_seqs", 8, 4, 1001.0) is not None
