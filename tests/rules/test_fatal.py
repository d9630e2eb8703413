"""The table of events that end something."""

from __future__ import annotations

import pytest

from infradoc_rules import fatal
from infradoc_rules.model import Event
from infradoc_rules.signals import signal_table
from infradoc_rules.summaries import summarise

COLUMNS = (fatal.END_A_START, fatal.END_SERVICE, fatal.END_A_PROCESS, fatal.END_A_WAIT, fatal.END_A_RUN)


def test_each_name_is_an_event_that_something_reads():
    named = frozenset().union(*COLUMNS)
    assert named <= set(signal_table().events)
    assert all(COLUMNS) and "traceback" not in named


@pytest.mark.parametrize("name", sorted(fatal.END_A_START))
def test_a_start_fails_by_each_of_its_column(name):
    facts = summarise(
        [Event("launched", 1, {}, None, "launch", "log:1"), Event(name, 2, {}, None, "launch", "log:2")], {}, None
    )
    assert facts["start.failed"].value is True and facts["start.failed_by"].value == name
