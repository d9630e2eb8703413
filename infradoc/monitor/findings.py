"""What fired when, over a whole watch or replay, and which of it is worth reporting at the end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from infradoc_rules.engine import RuleResults
from infradoc_rules.model import Finding
from infradoc_rules.ranking import rank

# A finding that fires in at least this share of the later part of a recording is told even if it is over at the end.
LATER_PART = 0.5
SHARE = 0.5
MIN_TICKS_AT_END = 2


def fingerprint(target: str, finding_id: str) -> str:
    """A short stable name of one finding on one target, for lists and de-duplication."""
    return hashlib.sha256(f"{target}\0{finding_id}".encode()).hexdigest()[:12]


@dataclass(slots=True)
class FiringRecord:
    """One rule's history. `strongest` is its finding at the highest confidence, the newest of equals."""

    strongest: Finding
    latest: Finding
    first_time: float
    last_time: float
    last_tick: int
    ticks: list[int] = field(default_factory=list)


class FindingLog:
    """Notes every evaluation; remembers how each rule fired."""

    def __init__(self) -> None:
        self.records: dict[str, FiringRecord] = {}
        self.explains: dict[str, tuple[str, ...]] = {}
        self.judged: dict[str, int] = {}
        self.missing: dict[str, tuple[str, ...]] = {}
        self.count = 0
        self._open: dict[str, Finding] = {}

    def note(self, results: RuleResults, now: float) -> tuple[list[Finding], list[Finding]]:
        """Take in one evaluation; returns the findings that opened and those that are there no more."""
        firing: dict[str, Finding] = {}
        for result in results.results:
            if result.state != "unknown":
                self.judged[result.id] = self.judged.get(result.id, 0) + 1
            self.missing[result.id] = result.missing if result.state == "unknown" else ()
            if result.finding is not None:
                firing[result.id] = result.finding
                self.explains[result.id] = tuple(result.rule.explains)
                self._record(result.finding, now)
        self.count += 1
        opened = [finding for name, finding in firing.items() if name not in self._open]
        resolved = [finding for name, finding in self._open.items() if name not in firing]
        self._open = firing
        return opened, resolved

    def _record(self, finding: Finding, now: float) -> None:
        record = self.records.get(finding.id)
        if record is None:
            self.records[finding.id] = FiringRecord(finding, finding, now, now, self.count, [self.count])
            return
        record.latest = finding
        record.last_time = now
        record.last_tick = self.count
        record.ticks.append(self.count)
        if finding.confidence >= record.strongest.confidence:
            record.strongest = finding

    def reported(self) -> list[Finding]:
        """Findings that stand at the end of the watch, or fired through most of its later part; ranked and folded.

        Each is shown as it was at its strongest. What fired only for a moment, or at the start alone, is left out.
        """
        kept = [record for record in self.records.values() if self._counts(record)]
        explains = {record.latest.id: self.explains[record.latest.id] for record in kept}
        return rank([record.strongest for record in kept], explains, frozenset())

    def _counts(self, record: FiringRecord) -> bool:
        at_end = record.last_tick == self.count - 1
        if at_end and len(record.ticks) >= min(MIN_TICKS_AT_END, self.count):
            return True
        start = int(self.count * (1 - LATER_PART))
        later = sum(1 for tick in record.ticks if tick >= start)
        return later >= SHARE * max(1, self.count - start)

    @property
    def checked(self) -> tuple[str, ...]:
        """Finding ids that could be judged at least once."""
        return tuple(self.judged)

    @property
    def blind(self) -> dict[str, tuple[str, ...]]:
        """Rules that never could be judged, with the signals they lacked at the last tick."""
        return {name: missing for name, missing in self.missing.items() if name not in self.judged}
