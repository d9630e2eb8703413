"""The line after a report for people: what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from infradoc.errors import visible
from infradoc.report.model import Report

_WORDS: Mapping[str, tuple[str, str]] = {
    "live": (
        "Next: infradoc fix {target} --finding {id} (plan only) | infradoc playbook {id}",
        "下一步：infradoc fix {target} --finding {id} --lang zh（只显示方案）| infradoc playbook {id} --lang zh",
    ),
    "kept": ("Next: infradoc playbook {id}", "下一步：infradoc playbook {id} --lang zh"),
}


def after_diagnosis(spec: str, report: Report, live: bool, lang: str) -> str | None:
    """For the first finding of a target; None where nothing was found. Only a live server has a plan."""
    if not report["findings"]:
        return None
    first = str(report["findings"][0]["id"])
    return _WORDS["live" if live else "kept"][lang == "zh"].format(target=visible(shlex.quote(spec)), id=first)
