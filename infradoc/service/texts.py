"""Findings of a watched target in another language: sinks may each speak their own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from infradoc.fleet.watcher import TargetWatcher
from infradoc.report.build import finding_part
from infradoc_rules.catalog import Catalog
from infradoc_rules.engine import RuleStates, evaluate_rules
from infradoc_rules.engine import findings as rank_findings


def in_language(watcher: TargetWatcher, catalog: Catalog, ids: Collection[str], lang: str) -> list[dict[str, Any]]:
    """The findings of `ids` that hold at this moment, as report v1 parts with texts in `lang`.

    One that only lingers (its rule keeps it for some periods) is left out: its texts stay in the watch's language.
    """
    rules = tuple(
        replace(rule, live=replace(rule.live, for_periods=0))
        for rule in catalog.rules
        if rule.id in ids and rule.live is not None
    )
    with watcher.reading() as frame:
        results = evaluate_rules(Catalog(rules), frame, RuleStates(), lang)
        return [finding_part(finding, frame) for finding in rank_findings(results)]
