"""The wait that a queue means."""

from __future__ import annotations

import pytest

from infradoc.fleet.vitals import board_vitals
from infradoc.model import Reading, Sample
from infradoc.signals.store import Store


def store(waiting: float, done_per_second: float, seconds: int = 20) -> Store:
    made = Store()
    for now in range(seconds + 1):
        samples = [
            Sample("llm_requests_waiting", (), now, waiting),
            Sample("llm_requests_running", (), now, 4.0),
            Sample("llm_requests_finished_total", (("reason", "stop"),), now, done_per_second * now),
        ]
        made.add(Reading("metrics", now, samples))
    return made


@pytest.mark.parametrize(("waiting", "rate", "wait"), [(10, 2.0, 5.0), (0, 2.0, 0.0), (0, 0.0, 0.0), (10, 0.0, None)])
def test_estimated_wait(waiting: float, rate: float, wait: float | None) -> None:
    vitals = board_vitals(store(waiting, rate).frame(20.0))
    assert vitals["estimated_wait_seconds"] == wait
    assert (vitals["running"], vitals["waiting"]) == (4.0, float(waiting))


def test_nothing_is_invented_for_a_server_that_shows_nothing() -> None:
    assert not any(value is not None for value in board_vitals(Store().frame(1.0)).values())
