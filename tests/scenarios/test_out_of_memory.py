"""The engine's own allocations fail under long prompts: found, fixed by a lower memory share through a drain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import OOM
from infradoc.demo.run import FaultResult

Play = Callable[..., FaultResult]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def assert_found_and_planned(result: FaultResult) -> None:
    """The share comes first, then the smaller pool and the smaller step."""
    assert result.finding is not None and result.plan is not None and result.outcome is not None
    assert result.finding.id == "oom-utilization-too-high"
    assert [step.action.name for step in result.plan.steps] == [
        "lower_gpu_memory_utilization",
        "lower_kv_capacity",
        "lower_max_num_batched_tokens",
    ]
    assert result.plan.steps[0].undo_value == 0.95
    failed, ended = result.outcome.before.errors()
    assert ended > 10 and failed > 0.5 * ended


def test_fixed(play: Play) -> None:
    result = play(OOM)
    assert_found_and_planned(result)
    assert result.verdict == "fixed", result.outcome
    assert result.outcome is not None and result.outcome.applied is not None
    share = result.outcome.applied.state.knobs["gpu_memory_utilization"].value
    assert isinstance(share, float) and share < 0.95
    assert result.outcome.after.errors()[0] == 0


def test_the_control_is_not_fixed(play: Play) -> None:
    result = play(OOM, fix=False)
    assert_found_and_planned(result)
    assert result.verdict == "not_fixed", result.outcome
