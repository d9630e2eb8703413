"""Faults of engines that a later version mends (`known_faults.yaml`): what an advice to upgrade may name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.match import evaluate_match, truth
from infradoc_rules.match_parse import MatchExpr, parse_match
from infradoc_rules.model import SignalFrame
from infradoc_rules.versions import Version, version_of
from infradoc_rules.yaml_file import load_plain


@dataclass(frozen=True)
class Fault:
    """One fault of an engine, in versions [since, fixed). `reason` by language, `reference`: where it was mended."""

    finding: str
    engine: str
    since: Version | None
    fixed: str
    when: MatchExpr | None
    pattern: re.Pattern[str] | None
    reason: Mapping[str, str]
    reference: str

    def spans(self, version: Version | None) -> bool:
        """Whether a version may have the fault; true where the version is not known."""
        if version is None:
            return True
        mended = version_of(self.fixed, self.engine)
        return (self.since is None or version >= self.since) and (mended is None or version < mended)

    def fits(self, frame: SignalFrame) -> bool | None:
        """Whether the symptom is this fault's; None where what is known of the target leaves it open."""
        if self.pattern is not None and not any(self.pattern.search(text) for text in _texts(frame)):
            return False
        return True if self.when is None else truth(evaluate_match(self.when, frame))


def known_fault(finding: str, frame: SignalFrame, version: str | None) -> tuple[Fault, bool] | None:
    """The fault behind a finding and whether that is sure: version known and in range, symptom there.

    None where no listed fault can be it. Of several the surest, then the one mended last.
    """
    parsed = version_of(version, frame.system)
    found = []
    for fault in faults():
        if fault.finding != finding or fault.engine != frame.system or not fault.spans(parsed):
            continue
        fits = fault.fits(frame)
        if fits is not False:
            found.append(
                (fits is True and parsed is not None, version_of(fault.fixed, fault.engine) or (0, 0, 0), fault)
            )
    if not found:
        return None
    sure, _, fault = max(found, key=lambda row: row[:2])
    return fault, sure


@lru_cache(maxsize=1)
def faults() -> tuple[Fault, ...]:
    """The packaged table, read once."""
    return tuple(_fault(row) for row in _raw()["faults"])


def newer_release(finding: str, engine: str | None, version: str | None) -> str | None:
    """The newest release that was looked at, for a finding that can only be a fault of the engine's software.

    None for other findings, for an unknown engine, and where the present version is that one or later.
    """
    newest: str | None = _raw()["newest"].get(engine or "")
    present, last = version_of(version, engine), version_of(newest, engine)
    if finding not in _raw()["software"] or last is None:
        return None
    return newest if present is None or present < last else None


@lru_cache(maxsize=1)
def _raw() -> dict[str, Any]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "known_faults.yaml")
    return raw


def _fault(row: Mapping[str, Any]) -> Fault:
    return Fault(
        finding=row["finding"],
        engine=row["engine"],
        since=version_of(row.get("since"), row["engine"]),
        fixed=row["fixed"],
        when=parse_match(row["when"]) if "when" in row else None,
        pattern=re.compile(row["pattern"]) if "pattern" in row else None,
        reason=row["reason"],
        reference=row["reference"],
    )


def _texts(frame: SignalFrame) -> Iterator[str]:
    for event in frame.events:
        yield from (str(value) for value in event.fields.values() if isinstance(value, str))
        if event.text:
            yield event.text
