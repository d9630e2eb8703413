"""Report v1 as types: what `diagnose` prints and other programs read. The JSON Schema beside it is the contract."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

SCHEMA = "infradoc.report/v1"
SCHEMA_MANY = "infradoc.reports/v1"

Status = Literal["ok", "degraded", "unhealthy", "unknown"]
EXIT_CODES: dict[Status, int] = {"ok": 0, "degraded": 10, "unhealthy": 20, "unknown": 30}


class TargetPart(TypedDict):
    """Who was looked at; system and version are null when not recognised."""

    name: str
    system: str | None
    version: str | None


class Report(TypedDict):
    """One target's report. `findings` follow the JSON Schema; `vitals` may hold nulls, which `not_visible` names.

    considered: diagnoses that came near, with the reason why each was set aside; the nearest first.
    changed: what differs between the last good run and the failing one, or changed during the watch.
    """

    schema: str
    status: Status
    target: TargetPart
    vitals: dict[str, float | None]
    findings: list[dict[str, Any]]
    checked: list[str]
    not_visible: list[str]
    unparsed_lines: int
    observed: NotRequired[dict[str, Any]]
    considered: NotRequired[list[dict[str, Any]]]
    changed: NotRequired[list[dict[str, Any]]]


def exit_code(reports: list[Report]) -> int:
    """The worst exit code of several reports: critical, then cannot tell, then warning, then healthy.

    Cannot tell outranks a warning: a target that nobody can see may be on fire.
    """
    order = [EXIT_CODES[status] for status in ("unhealthy", "unknown", "degraded", "ok")]
    codes = {EXIT_CODES[report["status"]] for report in reports}
    return next((code for code in order if code in codes), 0)
