"""What the monitor loop tells those who listen. It prints nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_rules.model import Finding


@dataclass(frozen=True, slots=True)
class FindingOpened:
    """A rule began to fire."""

    time: float
    finding: Finding


@dataclass(frozen=True, slots=True)
class FindingResolved:
    """A finding is there no more; `finding` is how it was last seen."""

    time: float
    finding: Finding


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A source that worked, or was never seen to work, failed. `error` is one sentence."""

    time: float
    source: str
    error: str


@dataclass(frozen=True, slots=True)
class SourceRecovered:
    """A source works again."""

    time: float
    source: str


MonitorEvent = FindingOpened | FindingResolved | SourceFailed | SourceRecovered
