"""Documents are tokenized on the event loop beside chat streams: found, fixed by a worker, verified at the clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import TOKENIZATION
from infradoc.demo.run import FaultResult

Play = Callable[..., FaultResult]


def checks(result: FaultResult) -> dict[str, bool | None]:
    """What was met."""
    assert result.outcome is not None
    return {check.name: check.passed for check in result.outcome.verdict.checks}


def assert_found_and_planned(result: FaultResult) -> None:
    assert result.finding is not None and result.plan is not None and result.outcome is not None
    assert result.finding.id == "cpu-tokenization-bottleneck"
    assert result.finding.evidence
    first = result.plan.steps[0]
    assert (first.action.knob, first.action.to_value, first.undo_value) == ("tokenizer_workers", 1, 0)
    assert result.outcome.after.source == "client"


@pytest.mark.timeout(170)
def test_a_worker_frees_the_loop(play: Play) -> None:
    """Short windows: judged by the rule alone, which rests on the server's own counters."""
    result = play(TOKENIZATION, short=True)
    assert_found_and_planned(result)
    assert result.outcome is not None and result.outcome.applied is not None
    assert result.outcome.applied.state.knobs["tokenizer_workers"].value == 1
    assert checks(result)["cpu-tokenization-bottleneck is quiet"] is True
    assert checks(result)["share of errors"] is True


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fixed(play: Play) -> None:
    result = play(TOKENIZATION)
    assert_found_and_planned(result)
    assert result.verdict == "fixed", result.outcome


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_control_is_not_fixed(play: Play) -> None:
    result = play(TOKENIZATION, fix=False)
    assert_found_and_planned(result)
    assert result.verdict == "not_fixed", result.outcome
    assert checks(result)["cpu-tokenization-bottleneck is quiet"] is False
