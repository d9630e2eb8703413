"""Findings of a watched target in another language: sinks may each speak their own."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import replace
from typing import Any

from infradoc.fleet.watcher import TargetWatcher
from infradoc.report.build import finding_part
from infradoc_rules.catalog import Catalog
from infradoc_rules.engine import RuleStates, evaluate_rules
from infradoc_rules.engine import findings as rank_findings

_KEPT_SECONDS = 30.0  # figures in the texts grow old; the findings of a look are judged anew for each language


class OtherTexts:
    """By target, kept for a while as long as the same findings hold. Used under the lock of the watch."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[str, tuple[float, frozenset[str], dict[str, list[dict[str, Any]]]]] = {}

    def of(
        self, watcher: TargetWatcher, ids: frozenset[str], langs: Set[str], now: float
    ) -> dict[str, list[dict[str, Any]]]:
        """The findings of `ids` in each of `langs`, as `in_language` gives them."""
        if not langs or not ids:
            return {}
        made, of_ids, texts = self._made.get(watcher.state.name, (0.0, frozenset(), {}))
        if of_ids != ids or now - made > _KEPT_SECONDS or set(texts) != langs:
            texts = {lang: in_language(watcher, self._catalog, ids, lang) for lang in langs}
            self._made[watcher.state.name] = (now, ids, texts)
        return texts

    def forget(self, name: str) -> None:
        """The target is watched no more."""
        self._made.pop(name, None)


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
