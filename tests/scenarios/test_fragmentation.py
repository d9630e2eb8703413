"""Blocks of 256 tokens under short requests, then blocks that leak: found, fixed by a drain and by defragmenting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import BLOCKS, LEAK
from infradoc.demo.run import FaultResult
from infradoc.remediation.data import outcome_json
from infradoc.remediation.table import reclaimed_blocks

Play = Callable[..., FaultResult]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def assert_smaller_blocks_are_planned(result: FaultResult) -> None:
    assert result.finding is not None and result.plan is not None
    assert result.finding.id == "fragmentation-kv-internal"
    first = result.plan.steps[0]
    assert (first.action.name, first.undo_value) == ("lower_block_size", 256)
    assert first.action.to_value == 8


def assert_the_leak_is_named(result: FaultResult) -> None:
    """With its owner and its age; a restart is left out with the reason."""
    assert result.finding is not None and result.plan is not None
    assert result.finding.id == "memory-leak"
    (step,) = result.plan.steps
    assert (step.action.name, step.undo_value) == ("defragment_kv", None)
    assert "the oldest belonged to request" in step.action.why
    assert any("the oldest has been lost for" in item.text for item in result.finding.evidence)
    assert [knob for knob, _ in result.plan.refused] == ["engine_restart"]


def test_large_blocks_fixed(play: Play) -> None:
    result = play(BLOCKS)
    assert_smaller_blocks_are_planned(result)
    assert result.verdict == "fixed", result.outcome


def test_large_blocks_control(play: Play) -> None:
    result = play(BLOCKS, fix=False)
    assert_smaller_blocks_are_planned(result)
    assert result.verdict == "not_fixed", result.outcome


def test_leaked_blocks_fixed(play: Play) -> None:
    result = play(LEAK)
    assert_the_leak_is_named(result)
    assert result.verdict == "fixed", result.outcome
    assert result.outcome is not None and result.outcome.applied is not None
    rows = reclaimed_blocks(result.outcome.applied.told)
    assert len(rows) == 54 and all(row["owner"] for row in rows)
    assert len(outcome_json(result.outcome)["change"]["told"]["reclaimed"]) == 54


def test_leaked_blocks_control(play: Play) -> None:
    result = play(LEAK, fix=False)
    assert_the_leak_is_named(result)
    assert result.verdict == "not_fixed", result.outcome
