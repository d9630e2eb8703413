"""Decides what is told and when. Pure: no clock, no disk, no network; the caller passes `now` in and stores the rest.

`observe` takes in what holds; `plan` says which notifications are due, and changes nothing; `commit` notes that one of
them is safe. So a full disk between the two loses nothing: the next `plan` says the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from infradoc.alerts.fold import fold, inhibit_by_area
from infradoc.alerts.incident import GONE_SCORE, OPEN, Incident, Status, fingerprint
from infradoc.alerts.matchers import Silence
from infradoc.alerts.timing import Timing

GroupBy = Literal["target", "finding", "incident"]
CLOCK_SLACK = 60.0  # seconds: looks end out of order, and clocks are nudged; what is more was set back by somebody
QUICK_SCORE = 2.0  # a critical finding that changed this often lately has no right to jump the group's interval


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident in a notification. `news`: it is why the notification is made; else it merely still holds."""

    incident: Incident
    status: Status
    news: bool
    carries: tuple[Incident, ...] = ()

    def after(self, now: float, timing: Timing) -> Incident:
        """The incident as it will be once the notification is safe: what is stored in the same transaction."""
        told = replace(self.incident)
        told.telling(now)
        told.settle(now, timing)
        return told


@dataclass(frozen=True, slots=True)
class Flush:
    """A notification that is due for one group; `by` says what the group's key is."""

    group: str
    now: float
    repeat: bool
    entries: tuple[Entry, ...]
    by: GroupBy = "target"


@dataclass(slots=True)
class Core:
    """All incidents, and when each group was last told. `dirty`: fingerprints whose stored state is out of date."""

    timing: Timing = field(default_factory=Timing)
    group_by: GroupBy = "target"
    area_of: Callable[[str], str] | None = None
    incidents: dict[str, Incident] = field(default_factory=dict)
    groups: dict[str, float] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    _clock: float = 0.0
    _names: dict[str, set[str]] = field(default_factory=dict)  # target -> fingerprints of its incidents

    def restore(self, now: float, incidents: Iterable[Incident], groups: Mapping[str, float]) -> None:
        """Take up what an earlier process left. What ended meanwhile is noticed at the next `observe`."""
        stored = list(incidents)
        ahead = max((incident.latest() for incident in stored), default=0.0) - now
        for incident in stored:
            if ahead > CLOCK_SLACK:  # the clock was set back meanwhile
                incident.move(-ahead)
            incident.last_seen = now  # nobody looked since: what is gone is over resolve_after from here
            self._add(incident)
        self.groups.update({key: min(last, now) for key, last in groups.items()})

    def follow(self, now: float) -> None:
        """A clock that was set back takes all waits with it: they last as long as they were to, not until it is that
        late again."""
        back = self._clock - now
        if back <= CLOCK_SLACK:
            return
        for incident in self.incidents.values():
            incident.move(-back)
            self.dirty.add(incident.fingerprint)
        self.groups = {key: last - back for key, last in self.groups.items()}
        self._clock = now

    def observe(
        self,
        now: float,
        target: str,
        system: str | None,
        findings: Mapping[str, Mapping[str, Mapping[str, Any]]],
        *,
        known: bool = True,
    ) -> None:
        """Take in the findings that hold at `target`: finding id -> language -> finding.

        known=False: the target could not be judged, so what is absent is not over.
        """
        now = self._clock = max(now, self._clock)  # a clock set back must not reopen waits that are over
        for name, texts in findings.items():
            self._see(now, target, system, name, texts)
        for incident in self._of(target):
            if known and incident.finding not in findings and incident.miss(now, self.timing):
                self.dirty.add(incident.fingerprint)
        self._fold(now, target)
        for incident in self._of(target):
            if incident.settle(now, self.timing):
                self.dirty.add(incident.fingerprint)

    def advance(self, now: float) -> None:
        """Let time pass, also for targets that nobody observes just now: flapping ends, and what is over goes."""
        self.follow(now)
        now = self._clock = max(now, self._clock)
        for incident in self.incidents.values():
            if incident.settle(now, self.timing):
                self.dirty.add(incident.fingerprint)
        self._forget(now)

    def drop_target(self, now: float, target: str) -> None:
        """`target` is watched no more: what fired there is over at once."""
        now = self._clock = max(now, self._clock)
        for incident in self._of(target):
            incident.state, incident.resolved_at, incident.flapping = "resolved", now, False
            incident.carried_by = ""
            incident.settle(now, self.timing)
            self.dirty.add(incident.fingerprint)

    def _see(
        self, now: float, target: str, system: str | None, name: str, texts: Mapping[str, Mapping[str, Any]]
    ) -> None:
        key = fingerprint(target, name)
        first = next(iter(texts.values()))
        incident = self.incidents.get(key)
        if incident is None:
            severity = str(first.get("severity", "warning"))
            incident = Incident(target, name, system, now, now, now, severity, severity)
            self._add(incident)
            self.dirty.add(key)
        if incident.see(now, first, self.timing):
            self.dirty.add(key)
        incident.system = system or incident.system
        incident.texts = {lang: dict(text) for lang, text in texts.items()}

    def _fold(self, now: float, target: str) -> None:
        """Only what fires can carry, and only that needs carrying; a root in its last seconds carries still."""
        active = [incident for incident in self._of(target) if incident.active]
        heads = [_head(incident) for incident in active]
        carrier = fold(heads)
        if self.area_of is not None:
            carrier = inhibit_by_area(heads, carrier, self.area_of)
        for incident in self._of(target):
            above = carrier.get(incident.finding, "")
            if above == incident.carried_by:
                continue
            if above:
                incident.carried_by = above
            else:
                incident.uncarried(now)
            self.dirty.add(incident.fingerprint)

    def _forget(self, now: float) -> None:
        for key, incident in list(self.incidents.items()):
            if incident.over and incident.decayed(now, self.timing) < GONE_SCORE:
                del self.incidents[key]
                self._names[incident.target].discard(key)
                self.dirty.add(key)
        alive = {self.group_of(incident) for incident in self.incidents.values()}
        for key, last in list(self.groups.items()):
            if key not in alive and now - last >= self.timing.group_interval:
                del self.groups[key]

    def plan(self, now: float, silences: Sequence[Silence] = ()) -> list[Flush]:
        """The notifications that are due. Changes nothing."""
        now = max(now, self._clock)
        groups: dict[str, list[Incident]] = {}
        for incident in self.incidents.values():
            groups.setdefault(self.group_of(incident), []).append(incident)
        made = (self._plan_group(now, key, members, silences) for key, members in groups.items())
        return [flush for flush in made if flush is not None]

    def _plan_group(
        self, now: float, key: str, members: Sequence[Incident], silences: Sequence[Silence]
    ) -> Flush | None:
        heard = [i for i in members if i.want == "resolved" or not muted(i, now, silences)]
        news = [i for i in heard if i.news]
        due = self._due(key, news)
        repeat = due is None or now < due
        if repeat:
            news = [i for i in heard if self._repeats(i, now)] if due is None else []
        if not news:
            return None
        still = [i for i in heard if i not in news and i.want in OPEN and i.told == i.want]
        entries = [self._entry(i, True) for i in news] + [self._entry(i, False) for i in still]
        return Flush(key, now, repeat, tuple(entries), self.group_by)

    def _due(self, key: str, news: Sequence[Incident]) -> float | None:
        if not news:
            return None
        wait, last = self.timing.group_wait, self.groups.get(key)
        due = min(i.changed_at for i in news) + wait
        if last is None:
            return due
        due = max(due, last + self.timing.group_interval)
        urgent = [i.changed_at + wait for i in news if _urgent(i)]
        return min([due, *urgent])

    def _repeats(self, incident: Incident, now: float) -> bool:
        same = incident.want == "firing" and incident.told == "firing"
        return same and now - incident.told_at >= self.timing.repeat_interval

    def _entry(self, incident: Incident, news: bool) -> Entry:
        carried = [i for i in self._of(incident.target) if i.carried_by == incident.finding and i.active]
        assert incident.want is not None
        return Entry(incident, incident.want, news, tuple(sorted(carried, key=lambda i: i.finding)))

    def commit(self, flush: Flush) -> None:
        """`flush` is safe in the outbox."""
        for entry in flush.entries:
            if entry.news:
                entry.incident.telling(flush.now)
                entry.incident.settle(flush.now, self.timing)
                self.dirty.add(entry.incident.fingerprint)
        self.groups[flush.group] = flush.now

    def group_of(self, incident: Incident) -> str:
        """The key of the group that tells of this incident."""
        if self.group_by == "incident":
            return incident.fingerprint
        return incident.target if self.group_by == "target" else incident.finding

    def _add(self, incident: Incident) -> None:
        self.incidents[incident.fingerprint] = incident
        self._names.setdefault(incident.target, set()).add(incident.fingerprint)

    def _of(self, target: str) -> list[Incident]:
        return [self.incidents[key] for key in sorted(self._names.get(target, ()))]


def muted(incident: Incident, now: float, silences: Sequence[Silence]) -> bool:
    """Whether a silence in force names this incident."""
    labels = {"target": incident.target, "finding": incident.finding, "severity": incident.severity}
    return any(silence.mutes(labels, now) for silence in silences)


def _urgent(incident: Incident) -> bool:
    return incident.want == "firing" and incident.severity == "critical" and incident.score < QUICK_SCORE


def _head(incident: Incident) -> dict[str, Any]:
    first: Mapping[str, Any] = next(iter(incident.texts.values()), {})
    return {**first, "id": incident.finding, "severity": incident.severity}
