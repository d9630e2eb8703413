"""The demo's flow with windows of a length that a test can afford."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import Fault
from infradoc.demo.run import FaultResult, Settings, run_fault
from infradoc.remediation.run import Timing

SHORT = Timing(baseline=6.0, hold=13.0, settle_limit=60.0, tail_limit=1.0)


@pytest.fixture
def play() -> Callable[..., FaultResult]:
    """Run one fault on a real engine under real load. `short` keeps to windows too short for a fair verdict."""

    def run(fault: Fault, *, fix: bool = True, short: bool = False) -> FaultResult:
        return run_fault(fault, Settings(fix=fix, timing=SHORT if short else None), print, print)

    return run
