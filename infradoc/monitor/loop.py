"""One tick through the flow: read the sources, store, evaluate the rules, say what changed. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infradoc.model import Reading
from infradoc.monitor.attach import Target
from infradoc.monitor.events import FindingOpened, FindingResolved, MonitorEvent, SourceFailed, SourceRecovered
from infradoc.monitor.findings import FindingLog
from infradoc.monitor.incident import Incidents
from infradoc.signals.frame import StoreFrame, window_for
from infradoc.signals.store import Store
from infradoc.sources.log import LogSource
from infradoc.sources.metrics_page import MetricsPageSource
from infradoc_rules.catalog import Catalog
from infradoc_rules.engine import RuleResults, RuleStates, evaluate_rules
from infradoc_rules.engine import findings as rank_findings
from infradoc_rules.model import Finding


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick gave. `findings` are those of firing rules, best first, symptoms folded under their roots."""

    now: float
    readings: Sequence[Reading]
    results: RuleResults
    findings: tuple[Finding, ...]
    frame: StoreFrame
    events: tuple[MonitorEvent, ...] = ()


class Evaluator:
    """Rules over one store, tick by tick. Used for live targets and recordings alike."""

    def __init__(
        self, store: Store, catalog: Catalog, lang: str = "en", recent_actions: frozenset[str] = frozenset()
    ) -> None:
        self.store = store
        self.log = FindingLog()
        self._catalog = catalog
        self._lang = lang
        self._states = RuleStates()
        self._incidents = Incidents()
        self.recent_actions = recent_actions

    def feed(self, readings: Sequence[Reading], now: float) -> Tick:
        """Store the readings and judge the target at `now` (Unix seconds)."""
        before = self.store.errors
        for reading in readings:
            self.store.add(reading)
        frame = StoreFrame(self.store, now, window_for(self.store.period))
        self._incidents.take(readings, now)
        frame.incident = self._incidents.frame(self.store, now)
        results = evaluate_rules(self._catalog, frame, self._states, self._lang)
        ranked = tuple(rank_findings(results, self.recent_actions))
        opened, resolved = self.log.note(results, now)
        events: list[MonitorEvent] = [FindingOpened(now, finding) for finding in opened]
        events += [FindingResolved(now, finding) for finding in resolved]
        events += _source_events(before, self.store.errors, now)
        return Tick(now, readings, results, ranked, frame, tuple(events))


def _system_of(readings: Sequence[Reading]) -> str | None:
    """The engine that a reading of this very tick recognised."""
    return next((str(fact.value) for one in readings for fact in one.facts if fact.name == "target.system"), None)


def _source_events(before: Mapping[str, str], after: Mapping[str, str], now: float) -> list[MonitorEvent]:
    failed: list[MonitorEvent] = [SourceFailed(now, name, after[name]) for name in after if name not in before]
    return failed + [SourceRecovered(now, name) for name in before if name not in after]


# Histograms that people are shown percentiles of, and that changes are sized by, whatever the catalog asks.
SHOWN_BUCKETS = frozenset(
    f"{name}_bucket"
    for name in (
        "llm_time_to_first_token_seconds",
        "llm_inter_token_latency_seconds",
        "llm_request_seconds",
        "llm_request_prompt_tokens",
        "llm_prompt_tokens_before_truncation",
        "llm_request_output_tokens",
        "llm_request_max_tokens",
    )
)


class Monitor:
    """Watches one live target."""

    def __init__(
        self,
        target: Target,
        catalog: Catalog,
        lang: str = "en",
        recent_actions: frozenset[str] = frozenset(),
    ) -> None:
        self.target = target
        self.evaluator = Evaluator(target.store, catalog, lang, recent_actions)
        self.findings: tuple[Finding, ...] = ()
        self.last: Tick | None = None
        self._next_look: dict[str, float] = {}
        page = target.source("metrics")
        if isinstance(page, MetricsPageSource):
            page.keep_buckets(catalog.bucket_names() | SHOWN_BUCKETS)

    @property
    def log(self) -> FindingLog:
        """What fired when."""
        return self.evaluator.log

    def tick(self, now: float | None = None) -> Tick:
        """Look at every source that is due and judge. `now` is Unix seconds, by default the present."""
        moment = time.time() if now is None else now
        tick = self.evaluator.feed(self._read(moment), moment)
        self.findings = tick.findings
        self.last = tick
        return tick

    def _read(self, now: float) -> list[Reading]:
        readings: list[Reading] = []
        for source in self.target.sources:
            if now < self._next_look.get(source.name, float("-inf")) or not source.is_supported():
                continue
            if isinstance(source, LogSource):
                source.written_by(self.target.store.system or _system_of(readings))
            # A source with an interval of its own gets a new look a little early rather than a whole tick late.
            self._next_look[source.name] = now + source.interval * 0.95
            readings.append(source.read(now))
            self.target.store.provide(source.provides)
        return readings

    def close(self) -> None:
        """Close the target's sources."""
        self.target.close()
