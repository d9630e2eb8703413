"""What is known of one watched target at one moment, as a frozen value that any thread may read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from infradoc.fleet.engine_view import EngineView
from infradoc.remediation.journal import ChangeRecord
from infradoc.report.model import Status
from infradoc.signals.frame import StoreFrame
from infradoc_rules.model import Finding

MarkKind = Literal["finding", "resolved", "change", "fix", "lost", "back", "restart"]

# A page is stale when it is this many periods old, and at least this many seconds: one slow scrape is no outage.
STALE_PERIODS = 3.0
STALE_SECONDS = 3.0
STATUS_RANK: Mapping[Status, int] = {"unhealthy": 0, "unknown": 1, "degraded": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at `time` (Unix seconds): a finding fired or resolved, a setting or the server changed.

    `key` is the finding id, the fact's name or the change's id; `text` is for people.
    """

    time: float
    kind: MarkKind
    key: str
    text: str
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """One target as of its last look. Times are Unix seconds.

    `spec` is what the user typed, `name` how the target is called. `tick_time` is None before the first look ended.
    `up`: the server gave its page at the last look. `seen`: when it last did. `findings` are report v1 finding objects
    of what holds right now, roots first; `vitals` are those of report v1 and `running`, `waiting`,
    `estimated_wait_seconds`. `changes` are the applied changes in the journal, oldest first. `error` is one sentence.
    `started`: when the server's process began, as last told. `checked` are ids of findings that could be judged,
    `blind` those that never could, each with the signals that it lacks.
    """

    spec: str
    name: str
    system: str | None = None
    version: str | None = None
    period: float = 1.0
    tick_time: float | None = None
    up: bool = False
    seen: float | None = None
    status: Status = "unknown"
    findings: tuple[Mapping[str, Any], ...] = ()
    vitals: Mapping[str, float | None] = field(default_factory=dict)
    changes: tuple[ChangeRecord, ...] = ()
    error: str | None = None
    looks: int = 0
    started: float | None = None
    checked: tuple[str, ...] = ()
    blind: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def changes_in_force(self) -> tuple[ChangeRecord, ...]:
        """Changes that the running process may have: what was made in one that has ended is gone with it."""
        return tuple(change for change in self.changes if change.open and change.is_of(self.started))

    def stale_seconds(self, now: float) -> float | None:
        """How old the server's last page is when that is too old to trust; None while it is fresh or never came."""
        if self.seen is None:
            return None
        age = now - self.seen
        late = age > max(STALE_PERIODS * self.period, STALE_SECONDS)
        return max(0.0, age) if late or not self.up else None

    @property
    def worst(self) -> tuple[int, float]:
        """Sorting key, worst first: status, then the confidence of the first finding."""
        confidence = float(self.findings[0]["confidence"]) if self.findings else 0.0
        return STATUS_RANK[self.status], -confidence


class View(Protocol):
    """A live target or a recording: the screen does not ask which."""

    @property
    def spec(self) -> str:
        """What the user typed."""

    @property
    def url(self) -> str:
        """The server's URL; empty for a recording or a log."""

    @property
    def state(self) -> Watched:
        """The newest state; never blocks."""

    def now(self) -> float:
        """The moment that is shown: the present, or where a recording stands."""

    def reading(self, at: float | None = None) -> AbstractContextManager[StoreFrame]:
        """A frame at `at` (default: `now()`) that nobody writes to while the block runs."""

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last moment there is (Unix seconds)."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What holds right now on a live server, to plan from."""

    def engine(self) -> EngineView | None:
        """A client for what only the bundled engine shows; None for what is no live server."""

    def start(self) -> None:
        """Begin to look or to read, in a thread."""

    def stop(self, timeout: float = 5.0) -> bool:
        """End it; False when the thread still hangs after `timeout` seconds."""

    def marks(self) -> tuple[Mark, ...]:
        """What happened up to `now()`, oldest first."""
