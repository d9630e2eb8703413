"""What a post-mortem leaves open: whether silence may mean health, and what would have to be seen to say more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infradoc.artefacts.model import Gathered
from infradoc.report.artefact_words import artefact_words
from infradoc.report.doubts import doubts
from infradoc.report.refused import refusals, refused
from infradoc.report.unexplained import unexplained_failure, unexplained_lines
from infradoc_rules.engine import RuleResults
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import SEVERITY_RANK, Event, Finding


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """Of one judgement. unexplained: the failure that no finding explains. doubts: why it cannot be called healthy,
    where neither a finding nor a failure nor a refused flag says so already. understood: silence means health.
    """

    gathered: Gathered
    frame: MemoryFrame
    results: RuleResults
    found: Sequence[Finding]
    unexplained: Event | None
    doubts: Sequence[str]
    lang: str

    @classmethod
    def of(
        cls, gathered: Gathered, frame: MemoryFrame, results: RuleResults, found: Sequence[Finding], lang: str
    ) -> LeftOpen:
        """What is left open where these findings are all that was found."""
        unexplained = None if _told(found) else unexplained_failure(frame.events, frame.facts)
        doubted: Sequence[str] = ()
        if not _told(found) and unexplained is None and not refusals(frame.events):
            doubted = doubts(frame.events, frame.facts, bool(gathered.series), lang)
        return cls(gathered, frame, results, found, unexplained, doubted, lang)

    @property
    def understood(self) -> bool:
        """Silence means health only where something that ran was understood and nothing telling stayed unread.

        A launch command alone says nothing of it.
        """
        ran = any(event.name != "flag_refused" for event in self.frame.events)
        read = (bool(self.gathered.series) or ran) and not self.gathered.notes.gaps
        fine = self.unexplained is None and not refusals(self.frame.events) and not self.doubts
        return read and bool(self.results.checked) and fine

    def sentences(self, vitals: Mapping[str, float | None]) -> Iterator[str]:
        """All of it for people: what was not read, why health is doubted, what failed, what would tell more."""
        yield from self.gathered.notes.sentences(self.lang)
        yield from self.doubts
        yield from self._failures()
        yield from self._wanted(vitals)

    def _failures(self) -> Iterator[str]:
        events, facts = self.frame.events, self.frame.facts
        yield from refused(events, facts, self.gathered.system, self.lang)
        if self.unexplained is not None and not refusals(events):
            yield from unexplained_lines(self.unexplained, events, facts, self.lang)

    def _wanted(self, vitals: Mapping[str, float | None]) -> Iterator[str]:
        say = artefact_words(self.lang)
        if not self.frame.events and not self.gathered.series:
            yield say["not_understood"]
            yield say["bring_log"]
        if not self.gathered.series and self.unexplained is None and not _told(self.found):
            yield say["bring_metrics"]
        if all(kind != "launch" for _, kind in self.gathered.kinds) and any(one.actions for one in self.found):
            yield say["bring_launch"]
        missing = [name for name, value in vitals.items() if value is None]
        if missing:
            yield say["vitals"].format(names=", ".join(missing))
        blind = [result.id for result in self.results.unknown]
        if blind:
            yield say["not_judged"].format(ids=", ".join(blind))


def _told(found: Sequence[Finding]) -> bool:
    """Whether a finding says that something is wrong."""
    return any(SEVERITY_RANK[finding.severity] >= 1 for finding in found)
