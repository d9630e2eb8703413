"""Which finding speaks for which: a root carries the symptoms that it explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infradoc.alerts.incident import RANK


def fold(findings: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Finding id -> id of the root that carries it, for those that are carried. Findings of one target that fire.

    What nobody explains comes first; in a circle of explanations the worst finding speaks. A finding that the report
    calls a symptom is carried by the first root even when that root does not name it.
    """
    by_id = {str(finding["id"]): finding for finding in findings}
    explained = {other for name, finding in by_id.items() for other in _explains(finding) if other != name}

    def order(finding: Mapping[str, Any]) -> tuple[bool, bool, int, float, str]:
        rank = RANK.get(str(finding.get("severity")), 1)
        name = str(finding["id"])
        return name in explained, finding.get("role") == "symptom", -rank, -float(finding.get("confidence") or 0), name

    roots: list[str] = []
    carrier: dict[str, str] = {}
    for finding in sorted(by_id.values(), key=order):
        name = str(finding["id"])
        if name in carrier:
            continue
        if finding.get("role") == "symptom" and roots:
            carrier[name] = roots[0]
            continue
        roots.append(name)
        todo = _explains(finding)
        while todo:
            other = todo.pop()
            if other in by_id and other not in carrier and other not in roots:
                carrier[other] = name
                todo += _explains(by_id[other])
    return carrier


def inhibit_by_area(
    findings: Sequence[Mapping[str, Any]], carrier: Mapping[str, str], area_of: Callable[[str], str]
) -> dict[str, str]:
    """`carrier`, and every lesser root below a critical root of its area. Only where the configuration asks for it."""
    roots = [finding for finding in findings if finding["id"] not in carrier]
    critical = {area_of(str(f["id"])): str(f["id"]) for f in reversed(roots) if f.get("severity") == "critical"}
    out = dict(carrier)
    for finding in roots:
        name = str(finding["id"])
        above = critical.get(area_of(name), "") if area_of(name) else ""
        if above and finding.get("severity") != "critical":
            out[name] = above
    return {name: out.get(above, above) for name, above in out.items()}


def _explains(finding: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in finding.get("explains") or ()]
