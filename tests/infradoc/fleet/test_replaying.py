"""A recording that stands at a moment: only what was known then is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.fleet.replaying import ReplayView
from infradoc_rules.catalog import load_catalog

ONSET = 15.0  # the recordings are calm for about so long


@pytest.fixture(scope="module")
def replay(recordings_dir: Path) -> ReplayView:
    view = ReplayView(recordings_dir / "vllm-05", load_catalog())
    view.load()
    return view


def test_it_stands_at_its_end_first(replay: ReplayView) -> None:
    replay.seek(None)
    first, last = replay.span
    assert replay.now() == last > first + 60
    assert replay.state.findings and replay.state.system == "vllm" and replay.state.error is None


def test_earlier_moments_know_nothing_of_later_ones(replay: ReplayView) -> None:
    first, _ = replay.span
    replay.seek(first + ONSET / 2)
    assert replay.state.findings == () and not [one for one in replay.marks() if one.kind == "finding"]
    with replay.reading() as frame:
        assert all(one.times[-1] <= first + ONSET / 2 for one in frame.select("llm_requests_running"))
    replay.seek(None)
    opened = next(one for one in replay.marks() if one.kind == "finding")
    assert first < opened.time <= replay.now() and opened.severity in ("info", "warning", "critical")


def test_steps_stay_inside(replay: ReplayView) -> None:
    first, last = replay.span
    assert replay.seek(0.0) == first and replay.step(-10) == first
    assert replay.step(5.0) == first + 5.0
    assert replay.step(1e9) == last
    looks = replay.state.looks
    replay.seek(first)
    assert replay.state.looks == 1 < looks
