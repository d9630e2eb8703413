"""One report on several servers that were judged apart: the worst first, each finding with the server it is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infradoc.report.artefact_words import artefact_words
from infradoc.report.model import Report, Status
from infradoc_rules.model import SEVERITY_RANK

_WORST: tuple[Status, ...] = ("unhealthy", "unknown", "degraded", "ok")


def joined(name: str, reports: Sequence[Report], lang: str = "en") -> Report:
    """The report on all of them; `target` keeps the name of what was given. At least one report."""
    say = artefact_words(lang)
    ordered = sorted(reports, key=_rank)
    worst = ordered[0]
    status = min((report["status"] for report in reports), key=_WORST.index)
    both: Report = worst.copy()
    both |= {
        "status": status,
        "target": worst["target"] | {"name": name},
        "findings": [_named(finding, report, say["of_server"]) for report in ordered for finding in report["findings"]],
        "checked": sorted(set().union(*(report["checked"] for report in reports))),
        "not_visible": [
            say["several"].format(count=len(reports), servers="; ".join(_said(one, say) for one in ordered)),
            *dict.fromkeys(line for report in ordered for line in report["not_visible"]),
        ],
        "unparsed_lines": sum(report["unparsed_lines"] for report in reports),
    }
    return both


def _rank(report: Report) -> tuple[int, int]:
    worst = max((SEVERITY_RANK[finding["severity"]] for finding in report["findings"]), default=-1)
    return -worst, _WORST.index(report["status"])


def _named(finding: dict[str, Any], report: Report, form: str) -> dict[str, Any]:
    return finding | {"title": form.format(title=finding["title"], server=report["target"]["name"])}


def _said(report: Report, say: Any) -> str:
    """A server, and what was found of it."""
    found = [finding["id"] for finding in report["findings"] if SEVERITY_RANK[finding["severity"]] >= 1]
    state = ", ".join(found) or say["several_ok" if report["status"] == "ok" else "several_unknown"]
    return f"{report['target']['name']} ({state})"
