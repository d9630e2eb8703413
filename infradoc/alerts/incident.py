"""One incident: a root finding of one target, from its first sight until it has been told as resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from infradoc.alerts.timing import Timing

State = Literal["pending", "firing", "resolved"]
Status = Literal["firing", "flapping", "resolved"]
OPEN: tuple[Status, ...] = ("firing", "flapping")
RANK = {"info": 0, "warning": 1, "critical": 2}
GONE_SCORE = 0.3  # below it a flap score says nothing any more, and a resolved incident is forgotten


def fingerprint(target: str, finding: str) -> str:
    """The same for every incident of this finding at this target: what receivers deduplicate by."""
    return hashlib.sha256(f"{target}\0{finding}".encode()).hexdigest()[:16]


@dataclass(slots=True)
class Incident:
    """State of one (target, finding). Times are Unix seconds.

    texts: the finding as a report v1 dict, by language. told: what was last announced (None: nothing yet).
    want: what ought to be announced, since `changed_at`. sequence: number of announcements so far, never reset, so a
    receiver can order them. peak: the worst severity of this episode: filters of sinks go by it, so that whoever heard
    it fire also hears it end.
    """

    target: str
    finding: str
    system: str | None
    since: float
    first_seen: float
    last_seen: float
    severity: str = "warning"
    peak: str = "warning"
    state: State = "pending"
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    carried_by: str = ""
    score: float = 0.0
    score_at: float = 0.0
    flapping: bool = False
    told: Status | None = None
    told_severity: str = ""
    told_at: float = 0.0
    want: Status | None = None
    changed_at: float = 0.0
    resolved_at: float | None = None
    sequence: int = 0

    @property
    def fingerprint(self) -> str:
        """Stable over episodes; see `fingerprint`."""
        return fingerprint(self.target, self.finding)

    @property
    def id(self) -> str:
        """Of this episode: the fingerprint and when it began, so that state lost and rebuilt gives no second name."""
        return f"{self.fingerprint}-{int(self.since)}"

    @property
    def active(self) -> bool:
        """Whether it is open for the outside: firing, or flapping in whatever phase."""
        return self.state == "firing" or self.flapping

    def as_dict(self) -> dict[str, Any]:
        """For storage; `from_dict` reads it back."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Incident:
        """An incident of a stored row; keys that this version does not know are left out."""
        known = {entry.name for entry in fields(Incident)}
        return Incident(**{key: value for key, value in data.items() if key in known})

    def see(self, now: float, finding: Mapping[str, Any], timing: Timing) -> bool:
        """The finding holds at `now`. Returns whether something changed that must outlive a restart."""
        changed = False
        severity = str(finding.get("severity", "warning"))
        if self.state == "resolved":
            self._begin_again(now, timing)
            changed = True
        if severity != self.severity:
            if RANK.get(severity, 1) > RANK.get(self.severity, 1):
                self.changed_at = now
            self.severity, changed = severity, True
        if RANK.get(severity, 1) > RANK.get(self.peak, 1):
            self.peak = severity
        self.last_seen = now
        if self.state == "pending" and now - self.first_seen >= timing.pending:
            self.state, changed = "firing", True
            self._transition(now, timing)
        return changed

    def _begin_again(self, now: float, timing: Timing) -> None:
        """A resolved finding holds once more: the same episode as long as nobody heard of its end."""
        self.first_seen, self.resolved_at = now, None
        if self.told == "resolved" or (self.told is None and not self.flapping):
            self._new_episode(now)
            self.state, self.peak = "pending", self.severity
        else:
            self.state = "firing"
            self._transition(now, timing)

    def miss(self, now: float, timing: Timing) -> bool:
        """The finding does not hold at `now`. Returns whether something changed."""
        if self.state == "pending" and self.told is None:
            self.state, self.resolved_at = "resolved", now
            return True
        if self.state == "firing" and now - self.last_seen >= timing.resolve_after:
            self.state, self.resolved_at = "resolved", now
            self._transition(now, timing)
            return True
        return False

    def settle(self, now: float, timing: Timing) -> bool:
        """Let the flap score decay, and work out what ought to be announced. Returns whether that changed."""
        was = self.flapping
        if self.flapping and self.decayed(now, timing) < timing.flap_end:
            self.flapping = False
        want = self._wanted()
        changed = want != self.want
        if changed:
            self.want, self.changed_at = want, now
        return changed or was != self.flapping

    def _wanted(self) -> Status | None:
        heard = self.told in OPEN
        if self.carried_by:  # its root speaks for it; who heard it alone is told that this one is closed
            return "resolved" if heard else None
        if self.flapping:
            return "flapping"
        if self.state == "firing":
            return "firing"
        return "resolved" if heard else None

    def latest(self) -> float:
        """The newest of its moments."""
        return max(self.last_seen, self.first_seen, self.score_at, self.told_at, self.changed_at, self.resolved_at or 0)

    def move(self, seconds: float) -> None:
        """Move what is measured from, when the clock was moved. `since` stays: it is part of the id."""
        self.first_seen, self.last_seen = self.first_seen + seconds, self.last_seen + seconds
        self.score_at, self.told_at = self.score_at + seconds, self.told_at + seconds
        self.changed_at += seconds
        if self.resolved_at is not None:
            self.resolved_at += seconds

    @property
    def news(self) -> bool:
        """Whether what is wanted has not been told yet: a new status, or a worse severity."""
        if self.want is None:
            return False
        worse = RANK.get(self.severity, 1) > RANK.get(self.told_severity, 1) if self.told == "firing" else False
        return self.want != self.told or (self.want == "firing" and worse)

    @property
    def over(self) -> bool:
        """Whether nothing is left to tell."""
        return self.state == "resolved" and not self.flapping and self.told in (None, "resolved")

    def telling(self, now: float) -> None:
        """It has been announced as wanted (the announcement is safe in the outbox)."""
        self.told, self.told_at, self.told_severity = self.want, now, self.severity
        self.sequence += 1

    def uncarried(self, now: float) -> None:
        """Its root is gone. Who was told that it is closed must hear of a new episode."""
        self.carried_by = ""
        if self.told == "resolved":
            self._new_episode(now)

    def _new_episode(self, now: float) -> None:
        self.since, self.told, self.told_severity, self.sequence = now, None, "", 0

    def decayed(self, now: float, timing: Timing) -> float:
        """The flap score at `now`."""
        return float(self.score * 0.5 ** (max(0.0, now - self.score_at) / timing.flap_half_life))

    def _transition(self, now: float, timing: Timing) -> None:
        self.score, self.score_at = min(timing.flap_most, self.decayed(now, timing) + 1.0), now
        if self.score >= timing.flap_start - 0.05:  # three changes within half a minute or so count as three
            self.flapping = True
