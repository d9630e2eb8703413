"""Sixteen clients on a KV pool of 24 blocks: found, fixed by growing the pool live, verified at the clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import KV
from infradoc.demo.run import FaultResult
from infradoc.remediation.measure import ClientMeasured

Play = Callable[..., FaultResult]
RULE = "kv-thrashing-preemption"


def checks(result: FaultResult) -> dict[str, bool | None]:
    """What was met."""
    assert result.outcome is not None
    return {check.name: check.passed for check in result.outcome.verdict.checks}


def assert_found_and_planned(result: FaultResult) -> None:
    """Growth ranks first where memory is free; lowering the batch limit is the alternative."""
    assert result.finding is not None and result.plan is not None and result.outcome is not None
    assert result.finding.id == RULE
    assert [step.action.name for step in result.plan.steps] == ["raise_kv_capacity", "lower_max_num_seqs"]
    assert all(step.action.cost for step in result.plan.steps)
    assert isinstance(result.outcome.after, ClientMeasured)


def assert_nothing_wants_it_back(result: FaultResult) -> None:
    assert RULE not in [finding.id for finding in result.afterwards]
    assert "batch-limit-too-small" not in [finding.id for finding in result.afterwards]


@pytest.mark.timeout(170)
def test_growth_ends_the_preemptions(play: Play) -> None:
    """Short windows: judged by the rule alone, which rests on the server's own counters."""
    result = play(KV, short=True)
    assert_found_and_planned(result)
    assert result.outcome is not None and result.outcome.applied is not None
    pool = result.outcome.applied.state.knobs["kv_pool_tokens"].value
    assert isinstance(pool, int) and pool >= 16 * (32 + 48)
    assert checks(result)[f"{RULE} is quiet"] is True
    assert checks(result)["share of errors"] is True
    assert_nothing_wants_it_back(result)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fixed(play: Play) -> None:
    result = play(KV)
    assert_found_and_planned(result)
    assert result.verdict == "fixed", result.outcome
    assert_nothing_wants_it_back(result)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_control_is_not_fixed(play: Play) -> None:
    result = play(KV, fix=False)
    assert_found_and_planned(result)
    assert result.verdict == "not_fixed", result.outcome
    assert checks(result)[f"{RULE} is quiet"] is False
