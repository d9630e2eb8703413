"""Both clocks go forward only."""

from __future__ import annotations

import pytest

from infradoc_engine.core.clock import MonotonicClock, VirtualClock


def test_the_monotonic_clock_does_not_go_back() -> None:
    clock = MonotonicClock()
    assert clock.now() <= clock.now()


def test_the_virtual_clock_moves_when_told() -> None:
    clock = VirtualClock(5.0)
    clock.advance(0.5)
    clock.advance_to(3.0)
    assert clock.now() == 5.5
    clock.advance_to(6.0)
    assert clock.now() == 6.0


@pytest.mark.parametrize("seconds", [-0.1, float("nan")])
def test_the_virtual_clock_refuses_to_go_back(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        VirtualClock().advance(seconds)
