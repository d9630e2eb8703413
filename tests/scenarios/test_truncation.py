"""Half of the prompts are cut while the server answers 200: found, fixed by the measured length and honest refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.demo.faults import TRUNCATION
from infradoc.demo.run import FaultResult

Play = Callable[..., FaultResult]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def assert_found_and_planned(result: FaultResult) -> None:
    assert result.finding is not None and result.plan is not None and result.outcome is not None
    assert result.finding.id == "silent-truncation"
    first = result.plan.steps[0]
    assert (first.action.name, first.action.from_value, first.undo_value) == ("raise_max_model_len", 128, 128)
    assert first.action.to_value in (256, 320)  # prompts of 240 words and answers of 28 tokens, measured at the clients
    assert (first.action.also, first.undo_also) == (
        (("truncation_policy", "reject"),),
        (("truncation_policy", "left"),),
    )
    cut, known = result.outcome.before.cut_prompts()
    assert 0.3 * known < cut < 0.7 * known
    assert result.outcome.before.errors()[0] == 0


def test_fixed(play: Play) -> None:
    result = play(TRUNCATION)
    assert_found_and_planned(result)
    assert result.verdict == "fixed", result.outcome
    assert result.outcome is not None
    assert result.outcome.after.cut_prompts()[0] == 0


def test_the_control_is_not_fixed(play: Play) -> None:
    result = play(TRUNCATION, fix=False)
    assert_found_and_planned(result)
    assert result.verdict == "not_fixed", result.outcome
