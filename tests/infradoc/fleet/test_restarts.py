"""A server that was out of sight is the same one; only another start time or a counter that began anew is a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from infradoc.fleet.marking import Marks
from infradoc.fleet.restarts import ProcessWatch
from infradoc.monitor.events import FindingOpened, FindingResolved, SourceFailed, SourceRecovered
from infradoc.remediation.process import started_at
from infradoc_rules.model import Finding, Series

FOUND = Finding("queue-saturation", "warning", 0.9, "too much", "c", "i", "f")
START = "proc_start_time_seconds"
TOKENS = "llm_generation_tokens_total"


@dataclass
class Frame:
    """A frame of last values by name, and by role."""

    values: Mapping[str, float | Mapping[str, float]]

    def select(self, name: str) -> list[Series]:
        found = self.values.get(name, {})
        rows = found if isinstance(found, Mapping) else {"api": found}
        return [Series(name, {"role": role}, np.array([1.0]), np.array([value])) for role, value in rows.items()]


def looked(*frames: Mapping[str, Any]) -> list[bool]:
    watch: Any = ProcessWatch()
    return [watch.look(Frame(values)) for values in frames]


def test_out_of_sight_is_no_restart() -> None:
    assert looked({START: 100.0, TOKENS: 7.0}, {START: np.nan, TOKENS: np.nan}, {}, {START: 100.9, TOKENS: 8.0}) == [
        False,
        False,
        False,
        False,
    ]


def test_another_start_time_is_a_restart_once() -> None:
    assert looked({START: 100.0}, {START: 200.0}, {START: 200.4}) == [False, True, False]


@pytest.mark.parametrize("between", [{}, {TOKENS: np.nan}])
def test_a_counter_that_began_anew_is_one_where_no_start_is_told(between: Mapping[str, float]) -> None:
    assert looked({TOKENS: 500.0}, between, {TOKENS: 3.0}, {TOKENS: 4.0}) == [False, False, True, False]


def test_a_worker_that_was_replaced_is_no_restart() -> None:
    assert looked({START: {"api": 100.0, "worker": 101.0}}, {START: {"api": 100.0, "worker": 300.0}}) == [False] * 2


def test_the_oldest_api_process_tells_the_start() -> None:
    frame: Any = Frame({START: {"api": 50.0, "worker": 10.0}})
    assert started_at(frame) == 50.0
    frame = Frame({START: {"worker": 10.0, "engine": 5.0}})
    assert started_at(frame) == 5.0
    frame = Frame({START: np.nan})
    assert started_at(frame) is None


def kinds(marks: Marks) -> list[str]:
    return [mark.kind for mark in marks.all()]


def test_a_finding_that_nobody_could_judge_meanwhile_is_neither_over_nor_new() -> None:
    marks = Marks()
    marks.add_events([FindingOpened(1.0, FOUND)], 1.0)
    marks.add_events([FindingResolved(2.0, FOUND), SourceFailed(2.0, "metrics", "gone")], 2.0)
    marks.add_events([SourceRecovered(9.0, "metrics")], 9.0)
    marks.add_events([FindingOpened(15.0, FOUND)], 15.0)
    marks.add_events([FindingResolved(16.0, FOUND)], 16.0)  # its window is still half empty
    marks.add_events([FindingOpened(18.0, FOUND)], 18.0)
    marks.add_events([], 200.0)
    assert kinds(marks) == ["finding", "lost", "back"]
    marks.add_events([FindingResolved(201.0, FOUND)], 201.0)
    assert kinds(marks)[-1] == "resolved"


def test_what_does_not_come_back_is_over() -> None:
    marks = Marks()
    marks.add_events([FindingOpened(1.0, FOUND)], 1.0)
    marks.add_events([SourceFailed(2.0, "metrics", "gone"), FindingResolved(2.0, FOUND)], 2.0)
    marks.add_events([SourceRecovered(9.0, "metrics")], 9.0)
    marks.add_events([], 38.0)
    assert kinds(marks) == ["finding", "lost", "back"]
    marks.add_events([], 40.0)
    assert kinds(marks) == ["finding", "lost", "back", "resolved"]
    assert marks.all()[-1].time == 9.0  # when it could be seen first, not when it was sure


def test_a_restart_ends_what_was_found_and_has_a_mark() -> None:
    marks = Marks()
    marks.add_events([FindingOpened(1.0, FOUND)], 1.0)
    marks.add_events([SourceFailed(2.0, "metrics", "gone"), FindingResolved(2.0, FOUND)], 2.0)
    marks.add_events([SourceRecovered(9.0, "metrics")], 9.0, restart=True)
    assert kinds(marks) == ["finding", "lost", "back", "restart", "resolved"]
    marks.add_events([FindingOpened(15.0, FOUND)], 15.0)
    assert kinds(marks)[-1] == "finding"
