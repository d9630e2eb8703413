from __future__ import annotations

import pytest

from infradoc.remediation.hold import FrameSince, HoldJudge
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Series
from infradoc_rules.rule_file import rule_of
from infradoc_rules.schema import Rule

CHANGED = 100.0


def frame(now: float, growing_until: float) -> MemoryFrame:
    """A counter that grew by one a second until a moment, seen once a second from 0 on."""
    times = [float(second) for second in range(int(now) + 1)]
    values = [min(second, growing_until) for second in times]
    return MemoryFrame.build([Series("llm_oom_total", {}, times, values)], now=now)


def rule(for_periods: int = 0) -> Rule:
    """A rule with a look back of a minute and a long memory."""
    text = {"en": "a", "zh": "b"}
    live = {"when": ["sum(increase(llm_oom_total[$long])) > 0"], "for": for_periods, "keep": 8}
    texts = dict.fromkeys(("title", "cause", "impact", "falsifier"), text)
    return rule_of({"schema": 1, "id": "refused", "severity": "warning", "live": live, **texts})


def judged(growing_until: float, hold: int = 20, **more: int) -> HoldJudge:
    judge = HoldJudge(rule(**more), CHANGED)
    for second in range(hold + 1):
        judge.look(frame(CHANGED + second, growing_until))
    return judge


def test_what_was_before_the_change_does_not_count() -> None:
    assert judged(growing_until=CHANGED).quiet("firing") is True


def test_what_goes_on_does() -> None:
    assert judged(growing_until=1000).quiet("ok") is False


def test_about_to_fire_is_not_quiet() -> None:
    assert judged(growing_until=1000, for_periods=15).quiet("ok") is False


@pytest.mark.parametrize(("live", "quiet"), [("ok", True), ("firing", False), ("unknown", None), (None, None)])
def test_a_hold_shorter_than_a_window_believes_the_live_state(live: str | None, quiet: bool | None) -> None:
    judge = judged(growing_until=1000, hold=8)
    assert judge.seen == []
    assert judge.quiet(live) is quiet  # type: ignore[arg-type]


def test_events_and_samples_from_before_are_gone() -> None:
    events = [Event("a", 0, time=50.0), Event("b", 1, time=150.0), Event("c", 2)]
    whole = MemoryFrame.build([Series("x", {}, [50.0, 150.0], [1.0, 2.0]), Series("x", {"l": "old"}, [50.0], [1.0])])
    cut = FrameSince(MemoryFrame.build(whole.select("x"), events=events), CHANGED)
    assert [event.name for event in cut.events] == ["b"]
    assert [(dict(series.labels), list(series.times)) for series in cut.select("x")] == [({}, [150.0])]
    assert (cut.now, cut.window, cut.period, cut.system, dict(cut.facts)) == (150.0, 10.0, 1.0, None, {})
