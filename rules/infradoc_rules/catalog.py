"""The packaged rules: one folder per area, one file per finding id, its cases file beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

from infradoc_rules.near import near
from infradoc_rules.rule_file import RuleError, load_rule, load_sound_rule
from infradoc_rules.schema import Rule

CASES_SUFFIX = ".cases.yaml"


_BUCKETS = re.compile(r"\b\w+_bucket\b")


@dataclass(frozen=True)
class Catalog:
    """Rules by file order (area, then id)."""

    rules: tuple[Rule, ...]

    def get(self, rule_id: str) -> Rule:
        """The rule of a finding id. Raises LookupError with the nearest one."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        meant = near(rule_id, [rule.id for rule in self.rules])
        raise LookupError(f"no rule for {rule_id!r}" + (f"; did you mean {meant!r}?" if meant else ""))

    def bucket_names(self) -> frozenset[str]:
        """Histogram series that some rule reads by bucket, in its expressions or to judge a fix."""
        texts = (text for rule in self.rules for text in rule.promql())
        judged = (metric for rule in self.rules for metric in rule.verify.metrics if metric.quantile is not None)
        return frozenset(
            [*(name for text in texts for name in _BUCKETS.findall(text)), *(f"{one.signal}_bucket" for one in judged)]
        )

    def only(self, *rule_ids: str) -> Catalog:
        """A catalog of these rules alone."""
        return Catalog(tuple(self.get(rule_id) for rule_id in rule_ids))


def default_dir() -> Path:
    """The folder of the packaged catalog."""
    return Path(str(resources.files("infradoc_rules") / "catalog"))


def rule_files(folder: Path) -> list[Path]:
    """Rule files below `folder`, without cases files, sorted."""
    return sorted(path for path in folder.rglob("*.yaml") if not path.name.endswith(CASES_SUFFIX))


def load_catalog(dir: Path | None = None, thresholds: Mapping[str, Mapping[str, float]] | None = None) -> Catalog:
    """The rules below `dir` (the packaged ones by default).

    thresholds: rule id -> threshold -> value, the only part of a rule that a site may override. Raises RuleError
    with one sentence per problem: a file that breaks the format, an override of a rule or threshold that is not there.
    """
    catalog = _packaged() if dir is None else _read(dir)
    return _overridden(catalog, thresholds) if thresholds else catalog


@lru_cache(maxsize=1)
def _packaged() -> Catalog:
    return _read(default_dir(), load_sound_rule)


def _with_marks(path: Path) -> Rule:
    return load_rule(path)[0]


def _read(folder: Path, load: Callable[[Path], Rule] = _with_marks) -> Catalog:
    rules, problems = [], []
    for path in rule_files(folder):
        try:
            rules.append(load(path))
        except RuleError as error:
            problems += error.problems
    if problems:
        raise RuleError(problems)
    return Catalog(tuple(rules))


def _overridden(catalog: Catalog, thresholds: Mapping[str, Mapping[str, float]]) -> Catalog:
    problems = []
    changed = {rule.id: rule for rule in catalog.rules}
    for rule_id, values in thresholds.items():
        if rule_id not in changed:
            meant = near(rule_id, changed)
            problems.append(
                f"thresholds: there is no rule {rule_id!r}" + (f"; did you mean {meant!r}?" if meant else "")
            )
            continue
        known = changed[rule_id].thresholds
        problems += [
            f"thresholds of {rule_id}: no threshold {name!r}; it has {', '.join(sorted(known)) or 'none'}"
            for name in values
            if name not in known
        ]
        changed[rule_id] = replace(changed[rule_id], thresholds={**known, **values})
    if problems:
        raise RuleError(problems)
    return Catalog(tuple(changed[rule.id] for rule in catalog.rules))
