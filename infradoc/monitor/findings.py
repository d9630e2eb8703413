"""What fired when, over a whole watch or replay, and which of it is worth reporting at the end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from infradoc_rules.engine import RuleResults
from infradoc_rules.model import Finding
from infradoc_rules.ranking import rank
from infradoc_rules.schema import Rule

# A finding that fires in at least this share of the later part of a recording is told even if it is over at the end.
LATER_PART = 0.5
SHARE = 0.5
MIN_TICKS_AT_END = 2
MOST_TICKS = 20_000  # of one rule; a watch that runs for months must not grow


@dataclass(slots=True)
class FiringRecord:
    """One rule's history. `strongest` is its finding at the highest confidence, the newest of equals.

    `ticks` are the numbers of the newest evaluations at which it fired, in order; `since` is when it fired first.
    """

    strongest: Finding
    ticks: deque[int]
    since: float


class FindingLog:
    """Notes every evaluation; remembers how each rule fired."""

    def __init__(self) -> None:
        self.records: dict[str, FiringRecord] = {}
        self.explains: dict[str, tuple[str, ...]] = {}
        self.judged: dict[str, int] = {}
        self.missing: dict[str, tuple[str, ...]] = {}
        self.essential: set[str] = set()
        self.rules: dict[str, Rule] = {}
        self.count = 0
        self._open: dict[str, Finding] = {}

    def note(self, results: RuleResults, now: float) -> tuple[list[Finding], list[Finding]]:
        """Take in the evaluation at `now` (Unix seconds); returns the findings that opened and those that are gone."""
        firing: dict[str, Finding] = {}
        for result in results.results:
            if result.state == "unknown" and result.rule.live is None:
                continue  # it judges what logs say of a start or a crash: a watch without such lines is not blind to it
            if result.state != "unknown":
                self.judged[result.id] = self.judged.get(result.id, 0) + 1
            self.rules[result.id] = result.rule
            if result.rule.essential:
                self.essential.add(result.id)
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
            self.records[finding.id] = FiringRecord(finding, deque([self.count], MOST_TICKS), now)
            return
        record.ticks.append(self.count)
        if finding.confidence >= record.strongest.confidence:
            record.strongest = finding

    def reported(self) -> list[Finding]:
        """Findings that stand at the end of the watch, or fired through most of its later part; ranked and folded.

        Each is shown as it was at its strongest. What fired only for a moment, or at the start alone, is left out.
        """
        kept = [record for record in self.records.values() if self._counts(record)]
        explains = {record.strongest.id: self.explains[record.strongest.id] for record in kept}
        return rank([record.strongest for record in kept], explains, frozenset())

    def _counts(self, record: FiringRecord) -> bool:
        at_end = record.ticks[-1] == self.count - 1
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
    def enough_seen(self) -> bool:
        """Whether a silence means something: no essential rule was blind.

        How many of the others were blind says what kind of engine it is, not how it is doing: llama.cpp shows half.
        """
        return bool(self.judged) and not self.essential & self.blind.keys()

    @property
    def blind(self) -> dict[str, tuple[str, ...]]:
        """Rules that never could be judged, with the signals they lacked at the last tick."""
        return {name: missing for name, missing in self.missing.items() if name not in self.judged}
