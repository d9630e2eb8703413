"""The latency ledger on a clock that the tests move."""

from __future__ import annotations

import pytest

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.latency import STAGES, LatencyLedger


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


def test_a_life_with_a_preemption_adds_up(clock: VirtualClock) -> None:
    ledger = LatencyLedger(clock.now)
    with ledger.measure("receive"):
        clock.advance(1)
    with ledger.measure("template"):
        clock.advance(2)
    ledger.add("tokenize", 3)
    clock.advance(3)
    ledger.begin("queue")
    clock.advance(4)
    ledger.admitted(clock.now())
    clock.advance(5)
    ledger.token(clock.now())
    clock.advance(6)
    ledger.preempted(clock.now())
    clock.advance(7)
    ledger.token(clock.now())
    clock.advance(8)
    ledger.token(clock.now())
    ledger.engine_done(clock.now())
    clock.advance(9)
    ledger.send_span(clock.now() - 9, clock.now())
    assert ledger.finish() == sum(ledger.stages.values()) == 45
    assert list(ledger.stages.values()) == [1, 2, 3, 4, 5, 7, 14, 0, 9]
    assert tuple(ledger.stages) == STAGES


def test_preempted_before_the_first_token(clock: VirtualClock) -> None:
    ledger = LatencyLedger(clock.now)
    ledger.admitted(clock.now())
    clock.advance(1)
    ledger.preempted(clock.now())
    clock.advance(2)
    ledger.preempted(clock.now())  # resumed and lost again without a token: still the same span
    clock.advance(3)
    ledger.token(clock.now())
    assert (ledger.stages["prefill"], ledger.stages["preempted"], ledger.stages["decode"]) == (1, 5, 0)


def test_sending_counts_only_after_the_last_token(clock: VirtualClock) -> None:
    ledger = LatencyLedger(clock.now)
    ledger.send_span(100, 101)
    assert ledger.stages["send"] == 0  # overlapped with decode
    clock.advance(5)
    ledger.engine_done(clock.now())
    ledger.send_span(103, 107)
    assert ledger.stages["send"] == 2


def test_the_engine_cannot_reopen_a_request_that_ended_at_a_stop_text(clock: VirtualClock) -> None:
    ledger = LatencyLedger(clock.now)
    ledger.admitted(clock.now())
    clock.advance(1)
    ledger.token(clock.now())
    ledger.engine_done(clock.now())
    clock.advance(50)
    ledger.token(clock.now())
    ledger.preempted(clock.now())
    ledger.engine_done(clock.now())
    assert ledger.stages["decode"] == ledger.stages["preempted"] == 0
    assert ledger.engine_end == 101


def test_snapshot_counts_open_spans_and_changes_nothing(clock: VirtualClock) -> None:
    ledger = LatencyLedger(clock.now)
    ledger.begin("queue")
    clock.advance(4)
    assert ledger.snapshot()["queue"] == 4
    assert ledger.stages["queue"] == 0
    ledger.end("queue")
    ledger.end("queue")
    assert ledger.stages["queue"] == 4
