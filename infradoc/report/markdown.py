"""A report as Markdown, for tickets and chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.report.asides import changed_line, considered_line
from infradoc.report.model import Report
from infradoc.report.words import words

_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def escape(text: object) -> str:
    """Text from rules, logs and names with Markdown's own characters made harmless."""
    return " ".join(str(text).split()).translate(_SPECIAL)


def to_markdown(report: Report, lang: str = "en") -> str:
    """The whole report."""
    from infradoc.report.text import status_text, vitals_line

    say = words(lang)
    target = report["target"]
    what = " ".join(str(part) for part in (target["system"], target["version"]) if part)
    lines = [f"## {status_text(report, say)} {escape(target['name'])}" + (f" ({escape(what)})" if what else "")]
    for place, finding in enumerate(report["findings"], 1):
        lines += ["", *_finding(place, finding, say)]
        lines += _changed(report, say) if place == 1 else []
    if report["status"] != "ok" and not report["findings"]:
        lines += ["", *_changed(report, say)]
    if considered := report.get("considered"):
        lines += ["", f"**{say['considered']}**:", *(f"- {escape(considered_line(one))}" for one in considered)]
    lines += ["", f"**{say['vitals']}**: {vitals_line(report, say)}"]
    lines.append(f"**{say['checked']}**: {', '.join(report['checked']) or say['nothing']}")
    if report["not_visible"]:
        lines += [f"**{say['not_visible']}**:", *(f"- {escape(entry)}" for entry in report["not_visible"])]
    return "\n".join(lines) + "\n"


def _changed(report: Report, say: Mapping[str, str]) -> list[str]:
    changed = report.get("changed", [])
    return [f"- **{say['changed']}**: {escape(changed_line(one, say['lang']))}" for one in changed]


def _finding(place: int, finding: Mapping[str, Any], say: Mapping[str, str]) -> list[str]:
    from infradoc.report.text import action_line

    head = f"### {place}. {escape(finding['title'])}"
    lines = [
        head,
        f"`{finding['id']}`, {say[finding['severity']]}, {say['confidence']} {finding['confidence']:.0%}",
        "",
    ]
    lines.append(f"- **{say['cause']}**: {escape(finding['cause'])}")
    lines.append(f"- **{say['impact']}**: {escape(finding['impact'])}")
    for entry in finding["evidence"]:
        where = ", ".join(str(part) for part in (entry["signal"], entry["source"]) if part)
        lines.append(f"- **{say['evidence']}**: {escape(entry['text'])}" + (f" ({escape(where)})" if where else ""))
    for number, action in enumerate(finding["actions"]):
        label = say["action"] if number == 0 else say["or"]
        why, cost = escape(action["why"]), escape(action["cost"])
        told = "; ".join(text for text in (why, f"{say['cost']}{cost}" if cost else "") if text)
        lines.append(f"- **{label}**: `{action_line(action, say)}` {told}".rstrip())
    lines.append(f"- **{say['falsifier']}**: {escape(finding['falsifier'])}")
    return lines
