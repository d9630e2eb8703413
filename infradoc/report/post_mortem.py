"""From artefacts to a report: no clock, one judgement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infradoc.artefacts.gather import gather
from infradoc.artefacts.model import Gathered
from infradoc.report.asides import changed_part, considered_part
from infradoc.report.build import finding_part, status_of
from infradoc.report.left_open import LeftOpen
from infradoc.report.model import SCHEMA, Report
from infradoc.report.several import joined
from infradoc.sources.secrets import clean_report
from infradoc_rules.catalog import Catalog
from infradoc_rules.considered import considered
from infradoc_rules.engine import RuleResult, RuleResults, evaluate_rules, findings
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.lifecycle import RuleStates
from infradoc_rules.maps import SYSTEMS as MAPPED
from infradoc_rules.maps import load_map
from infradoc_rules.model import Series
from infradoc_rules.schema import Rule
from infradoc_rules.summaries import summarise
from infradoc_rules.summaries.changed import changes

if TYPE_CHECKING:
    from infradoc.report.plots import Plot

_VITALS = (
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "queue_depth",
    "ttft_p99_seconds",
    "itl_p99_seconds",
    "kv_usage_ratio",
)
RECORDED = (".log", "launch.txt")  # files of a recording that say what happened before the server answered
_LONGEST_PERIOD = 7 * 86_400.0  # pages pasted years apart are no scrapes of one watch


def diagnose_artefacts(
    path: Path | None, catalog: Catalog, lang: str = "en", plots: list[Plot] | None = None
) -> Report:
    """Read everything under `path` (None: standard input) and judge it; with `plots`, add what a page draws.

    Raises ArtefactError when there is nothing to read.
    """
    gathered = gather(path)
    report = judge(gathered, catalog, lang)
    if plots is not None:
        from infradoc.report.plots import logged_plots

        plots += logged_plots(gathered.events, [finding["id"] for finding in report["findings"]])
    return report


def diagnose_logs(folder: Path, catalog: Catalog, lang: str = "en") -> Report:
    """Judge the logs and the launch command of a recording by themselves. Raises ArtefactError when it has none."""
    return judge(gather(folder, RECORDED), catalog, lang)


def judge(gathered: Gathered, catalog: Catalog, lang: str = "en") -> Report:
    """The report on what was gathered, and where it is of several servers on each. No text in it holds a secret."""
    if gathered.servers:
        apart = [judge(one, catalog, lang) for one in gathered.servers]
        # Where each alone looks well, what they say together may still tell: runs that are to be compared.
        if any(report["status"] != "ok" for report in apart):
            return joined(gathered.name, apart, lang)
    frame = frame_of(gathered)
    # Without a scrape no live condition can hold: asking them would only parse their expressions.
    past = Catalog(tuple(replace(rule, live=None) for rule in catalog.rules))
    results = _both(evaluate_rules(past, frame, RuleStates(), lang), _on_scrapes(gathered, frame, catalog, lang))
    found = findings(results)
    left_open = LeftOpen.of(gathered, frame, results, found, lang)
    version = frame.facts.get("target.version")
    vitals = _vitals(frame)
    report: Report = {
        "schema": SCHEMA,
        "status": status_of(found, left_open.understood),
        "target": {
            "name": gathered.name,
            "system": gathered.system,
            "version": str(version.value) if version else None,
        },
        "vitals": vitals,
        "findings": [finding_part(finding, frame) for finding in found],
        "checked": list(results.checked),
        "not_visible": list(left_open.sentences(vitals)),
        "unparsed_lines": gathered.unparsed,
        "considered": considered_part(considered(found, _weighed(results, catalog), frame, lang)),
        "changed": changed_part(changes(gathered.events, gathered.stated)),
    }
    cleaned: Report = clean_report(report)
    return cleaned


def frame_of(gathered: Gathered) -> MemoryFrame:
    """What post-mortem conditions see: the events in order, the facts, and what a summary of both adds."""
    facts = summarise(gathered.events, gathered.facts, gathered.system)
    return MemoryFrame.build((), events=gathered.events, facts=facts.values(), system=gathered.system, now=0.0)


def _weighed(results: RuleResults, catalog: Catalog) -> list[Rule]:
    """The rules that could be judged, and those that can say what it would take."""
    judged = set(results.checked)
    return [rule for rule in catalog.rules if rule.id in judged or rule.set_aside is not None]


def _on_scrapes(gathered: Gathered, frame: MemoryFrame, catalog: Catalog, lang: str) -> RuleResults | None:
    """The live conditions on pasted metrics pages. No further scrape will come, so none is waited for."""
    if not gathered.series:
        return None
    period = _period(gathered.series)
    provides = load_map(gathered.system).provides if gathered.system in MAPPED else None
    seen = MemoryFrame.build(
        gathered.series,
        events=frame.events,
        facts=frame.facts.values(),
        system=gathered.system,
        window=4 * period,
        period=period,
        provides=provides,
    )
    rules = [
        replace(rule, live=replace(rule.live, for_periods=0), post_mortem=None)
        for rule in catalog.rules
        if rule.live is not None
    ]
    return evaluate_rules(Catalog(tuple(rules)), seen, RuleStates(), lang)


def _period(series: Sequence[Series]) -> float:
    """The usual distance of scrapes in seconds."""
    longest = max(series, key=lambda one: len(one.times))
    gaps = sorted(later - earlier for earlier, later in pairwise(longest.times))
    return min(max(1.0, gaps[len(gaps) // 2]), _LONGEST_PERIOD) if gaps else 15.0


def _both(past: RuleResults, live: RuleResults | None) -> RuleResults:
    """Each rule's result from events and facts; from the scrapes where only they can judge, or only they fire."""
    if live is None:
        return past
    joined = tuple(_better(result, live.by_id.get(result.id)) for result in past.results)
    return RuleResults(joined, {result.id: result for result in joined})


def _better(past: RuleResult, live: RuleResult | None) -> RuleResult:
    if live is None or past.finding is not None or live.state == "unknown":
        return past
    return live if live.finding is not None or past.state == "unknown" else past


def _vitals(frame: MemoryFrame) -> dict[str, float | None]:
    """The newest values that a log line or a metrics page states."""
    vitals: dict[str, float | None] = dict.fromkeys(_VITALS)
    for event in frame.events:
        if event.name == "stats_line":
            _set(vitals, "queue_depth", event.fields.get("waiting"))
            _set(vitals, "kv_usage_ratio", event.fields.get("kv_usage"))
    for name, fact in (
        ("queue_depth", "metrics.llm_requests_waiting"),
        ("kv_usage_ratio", "metrics.llm_kv_cache_usage_ratio"),
        ("gpu_utilization_ratio", "gpu.utilization_ratio"),
        ("gpu_memory_used_bytes", "gpu.memory_used_bytes"),
    ):
        _set(vitals, name, frame.facts[fact].value if fact in frame.facts else None)
    return vitals


def _set(vitals: dict[str, float | None], name: str, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        vitals[name] = float(value)
