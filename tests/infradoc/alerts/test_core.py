"""What is told, when, and how often: the pure core under any order of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infradoc.alerts.core import Core, Flush
from infradoc.alerts.incident import Incident
from infradoc.alerts.matchers import Silence, parse_matcher
from infradoc.alerts.timing import Timing

Finding = dict[str, Any]
T0 = 1_700_000_000.0


@dataclass
class World:
    """A core, its clock, and everything that it has told."""

    core: Core = field(default_factory=Core)
    now: float = T0
    told: list[Flush] = field(default_factory=list)
    severe: list[bool] = field(default_factory=list)  # whether a flush told of something critical, as it was then
    silences: tuple[Silence, ...] = ()

    def see(self, *findings: Finding, target: str = "prod", known: bool = True) -> None:
        self.core.observe(self.now, target, "vllm", {f["id"]: {"en": f} for f in findings}, known=known)
        self.tell()

    def tell(self) -> None:
        self.core.advance(self.now)
        for flush in self.core.plan(self.now, self.silences):
            self.told.append(flush)
            self.severe.append(any(entry.incident.severity == "critical" for entry in flush.entries))
            self.core.commit(flush)

    def run(self, seconds: float, *findings: Finding, step: float = 1.0, target: str = "prod") -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.see(*findings, target=target)

    @property
    def statuses(self) -> list[list[tuple[str, str]]]:
        """Per notification: (finding, status) of its news."""
        return [[(e.incident.finding, e.status) for e in flush.entries if e.news] for flush in self.told]


def test_one_finding_is_told_once_and_once_more_when_it_is_over(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(3600, finding("a"))
    assert world.statuses == [[("a", "firing")]]
    assert world.told[0].now - T0 == pytest.approx(11)  # group_wait after its first sight
    world.run(3600)
    assert world.statuses[1:] == [[("a", "resolved")]]


def test_what_goes_before_anybody_heard_of_it_is_never_told(finding: Callable[..., Finding]) -> None:
    world = World(Core(Timing(resolve_after=2)))
    world.run(3, finding("a"))
    world.run(3600, step=5)
    assert world.told == [] and world.core.incidents == {}


def test_pending_time_is_waited_for(finding: Callable[..., Finding]) -> None:
    world = World(Core(Timing(pending=60, group_wait=0)))
    world.run(59, finding("a"))
    assert world.told == [] and next(iter(world.core.incidents.values())).state == "pending"
    world.run(5, finding("a"))
    assert world.statuses == [[("a", "firing")]]


def test_one_notification_for_what_comes_together(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(3, finding("a"))
    world.run(100, finding("a"), finding("b"))
    assert sorted(world.statuses[0]) == [("a", "firing"), ("b", "firing")] and len(world.told) == 1
    world.run(400, finding("a"), finding("b"), finding("c"))
    assert world.statuses[1:] == [[("c", "firing")]]
    assert {e.incident.finding for e in world.told[1].entries} == {"a", "b", "c"}
    assert world.told[1].now - world.told[0].now >= 300


def test_targets_are_told_apart_and_findings_together_if_asked(finding: Callable[..., Finding]) -> None:
    for group_by, expected in (("target", 2), ("finding", 1), ("incident", 2)):
        world = World(Core(group_by=group_by))
        for _ in range(30):
            world.now += 1
            world.see(finding("a"), target="one")
            world.see(finding("a"), target="two")
        assert len(world.told) == expected, group_by


def test_a_critical_finding_does_not_wait_for_the_interval(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(20, finding("a"))
    world.run(20, finding("a"), finding("b", "critical"))
    assert world.statuses == [[("a", "firing")], [("b", "firing")]]


def test_a_finding_that_gets_worse_is_told_again_and_one_that_gets_better_is_not(
    finding: Callable[..., Finding],
) -> None:
    world = World()
    world.run(600, finding("a", "warning"))
    world.run(600, finding("a", "critical"))
    world.run(600, finding("a", "warning"))
    assert world.statuses == [[("a", "firing")]] * 2


def test_a_lasting_finding_is_repeated(finding: Callable[..., Finding]) -> None:
    world = World(Core(Timing(repeat_interval=3600)))
    world.run(4 * 3600 + 60, finding("a"), step=10)
    assert len(world.told) == 5 and [flush.repeat for flush in world.told] == [False, True, True, True, True]


def test_a_symptom_goes_with_its_root(finding: Callable[..., Finding]) -> None:
    world = World()
    root, symptom = finding("root", explains=["mid"]), finding("leaf", "critical", role="symptom")
    world.run(600, root, finding("mid", explains=["leaf"]), symptom)
    assert world.statuses == [[("root", "firing")]]
    assert [i.finding for i in world.told[0].entries[0].carries] == ["leaf", "mid"]


def test_a_symptom_that_was_told_alone_is_closed_when_its_root_appears_and_comes_back_without_it(
    finding: Callable[..., Finding],
) -> None:
    world = World()
    world.run(400, finding("leaf"))
    first = next(iter(world.core.incidents.values())).id
    world.run(400, finding("leaf"), finding("root", explains=["leaf"]))
    assert sorted(world.statuses[1]) == [("leaf", "resolved"), ("root", "firing")]
    world.run(800, finding("leaf"))
    assert sorted(news for told in world.statuses[2:] for news in told) == [("leaf", "firing"), ("root", "resolved")]
    assert next(i for i in world.core.incidents.values() if i.finding == "leaf").id != first


def test_a_root_that_flickers_does_not_let_its_symptom_out(finding: Callable[..., Finding]) -> None:
    world = World()
    root = finding("root", explains=["leaf"])
    for number in range(600):
        world.now += 1
        world.see(*([root] if number % 20 else []), finding("leaf"))
    assert world.statuses == [[("root", "firing")]]


def test_findings_that_explain_each_other_are_told_once(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(100, finding("a", explains=["b"]), finding("b", "critical", explains=["a"]))
    assert world.statuses == [[("b", "firing")]]


def test_critical_mutes_warnings_of_its_area_only_if_configured(finding: Callable[..., Finding]) -> None:
    area = {"a": "kv", "b": "kv", "c": "gpu"}
    found = (finding("a"), finding("b", "critical"), finding("c"))
    plain, configured = World(), World(Core(area_of=lambda name: area.get(name, "")))
    plain.run(100, *found)
    configured.run(100, *found)
    assert {name for name, _ in plain.statuses[0]} == {"a", "b", "c"}
    assert {name for name, _ in configured.statuses[0]} == {"b", "c"}


def test_a_target_that_cannot_be_judged_resolves_nothing(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(20, finding("a"))
    for _ in range(600):
        world.now += 1
        world.see(known=False)
    assert world.statuses == [[("a", "firing")]]
    world.run(400)
    assert world.statuses[1:] == [[("a", "resolved")]]


def test_a_target_that_is_dropped_resolves_at_once(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(400, finding("a"))
    world.core.drop_target(world.now, "prod")
    world.now += 10
    world.tell()
    assert world.statuses[1:] == [[("a", "resolved")]]


def test_silences_mute_what_they_match_and_end(finding: Callable[..., Finding]) -> None:
    silence = Silence("s", (parse_matcher("finding=~a.*"), parse_matcher("target=prod")), T0, T0 + 600)
    world = World(silences=(silence,))
    world.run(500, finding("ab"), finding("b"))
    assert world.statuses == [[("b", "firing")]]
    world.run(300, finding("ab"), finding("b"))
    assert world.statuses[1:] == [[("ab", "firing")]] and world.told[1].now >= T0 + 600


def test_the_end_of_what_was_told_before_the_silence_is_told(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(400, finding("a"))
    world.silences = (Silence("s", (parse_matcher("target=prod"),), world.now, world.now + 10_000),)
    world.run(600)
    assert world.statuses[1:] == [[("a", "resolved")]]


@pytest.mark.parametrize("on_off", [(1, 1), (10, 40), (40, 40), (120, 60), (60, 120)])
def test_ten_thousand_events_of_one_cause_give_at_most_three_notifications(
    finding: Callable[..., Finding], on_off: tuple[int, int]
) -> None:
    """It comes and goes until 10,000 reports of it have come in; then it stays away for good."""
    world = World(Core(Timing(repeat_interval=10**9)))
    on, off = on_off
    events = 0
    while events < 10_000:
        for _ in range(on):
            world.now += 1
            world.see(finding("a"))
            events += 1
        for _ in range(off):
            world.now += 1
            world.see()
    assert len(world.told) <= 2
    world.run(6 * 3600, step=5)
    assert len(world.told) <= 3 and world.statuses[-1] == [("a", "resolved")]


def test_ten_thousand_findings_with_one_root_give_one_notification(finding: Callable[..., Finding]) -> None:
    names = [f"leaf-{number}" for number in range(10_000)]
    world = World()
    root = finding("root", "critical", explains=names)
    for _ in range(3):
        world.now += 10
        world.see(root, *(finding(name) for name in names))
    assert world.statuses == [[("root", "firing")]] and len(world.told[0].entries[0].carries) == 10_000


def test_what_flaps_and_then_holds_is_told_as_firing_again(finding: Callable[..., Finding]) -> None:
    world = World()
    for _ in range(10):
        world.run(60, finding("a"))
        world.run(60)
    world.run(4 * 3600, finding("a"), step=5)
    told = [status for flush in world.statuses for _, status in flush]
    assert told[:3] == ["firing", "flapping", "firing"]


def test_a_restart_forgets_nothing_and_notices_what_ended(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(400, finding("a"), finding("b"))
    stored = [Incident.from_dict(i.as_dict()) for i in world.core.incidents.values()]
    ids = {i.id for i in stored}
    again = World(now=world.now + 3600)
    again.core.restore(again.now, stored, world.core.groups)
    again.run(600, finding("a"))
    assert again.statuses == [[("b", "resolved")]]
    assert {e.incident.id for e in again.told[0].entries} == ids


def test_a_clock_set_back_stops_nothing(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(400, finding("a"))
    world.now -= 50
    world.run(600)
    assert world.statuses == [[("a", "firing")], [("a", "resolved")]]


def test_a_clock_set_back_by_a_day_puts_no_news_off_by_a_day(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(400, finding("a"))
    began = world.told[0].entries[0].incident.id
    world.now -= 86_400
    world.run(400, finding("a"), finding("b"))
    assert world.statuses == [[("a", "firing")], [("b", "firing")]]
    world.run(700)
    assert sorted(news for told in world.statuses[2:] for news in told) == [("a", "resolved"), ("b", "resolved")]
    ended = [e.incident.id for flush in world.told[2:] for e in flush.entries if e.incident.finding == "a"]
    assert ended == [began], "the id stays"


def test_a_clock_set_back_while_nothing_ran(finding: Callable[..., Finding]) -> None:
    world = World()
    world.run(5, finding("a"))
    again = World(Core(), now=world.now - 86_400)
    again.core.restore(again.now, world.core.incidents.values(), world.core.groups)
    again.run(60, finding("a"))
    assert again.statuses == [[("a", "firing")]]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0.2, 1.0, 7.0, 31.0, 90.0, 400.0]),
        st.frozensets(st.sampled_from(["a", "b", "c", "d"])),
        st.sampled_from(["info", "warning", "critical"]),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, restart=st.integers(0, 59))
def test_any_order_of_events(finding: Callable[..., Finding], events: list[Any], restart: int) -> None:
    """Statuses alternate, sequences count up, groups keep their interval, and everything ends resolved."""
    world = World()
    explains = {"a": ["b"], "c": ["d", "a"]}
    for number, (wait, names, severity, known) in enumerate(events):
        if number == restart:
            stored = [Incident.from_dict(i.as_dict()) for i in world.core.incidents.values()]
            groups = dict(world.core.groups)
            world.core = Core()
            world.core.restore(world.now, stored, groups)
        world.now += wait
        world.see(*(finding(name, severity, explains=explains.get(name, [])) for name in sorted(names)), known=known)
    world.run(4 * 3600, step=20)
    open_now: dict[str, str] = {}
    for before, flush, severe in zip([None, *world.told], world.told, world.severe, strict=False):
        if before is not None and not severe:
            assert flush.now - before.now >= 300
        for entry in (entry for entry in flush.entries if entry.news):
            name = entry.incident.finding
            assert entry.status != "resolved" or name in open_now, "an end of what nobody heard of"
            open_now.pop(name, None)
            if entry.status != "resolved":
                open_now[name] = entry.status
    assert open_now == {} and world.core.incidents == {}
