"""Counts of how answers ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.tally import TallyKind
from infradoc.artefacts.model import Segment

KIND = TallyKind()


def counted(lines):
    events = KIND.read(Segment("tally", "reasons.txt", 1, lines)).events
    return [(event.fields["reason"], event.repeat) for event in events]


@pytest.mark.parametrize(
    "lines",
    [
        ["    842 length", "    158 stop"],
        ['    842 "length"', '    158 "stop"'],
        ["length          842", "stop            158"],
        ["| length | 842 | 84.2% |", "| stop | 158 | 15.8% |"],
        ["length,842", "stop,158"],
    ],
)
def test_rows_of_every_form(lines):
    assert KIND.spans(["finish_reason  count", *lines, "done"]) == [(1, 3)]
    assert counted(lines) == [("length", 842), ("stop", 158)]


@pytest.mark.parametrize(
    "lines",
    [
        ["length 842"],
        ["    842 stop", "    158 tool_calls"],
        ["max length 842 tokens", "stop after 158 tokens"],
        ["length: 512.5", "stop: 3.1"],
    ],
)
def test_no_tally(lines):
    assert KIND.spans(lines) == []


@given(st.lists(st.text(alphabet="length stop 0123|,\"'%.", max_size=40), max_size=6))
def test_any_lines(lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)
    assert all(count > 0 for _, count in counted(lines))
