"""An applied change in the words of the watch, one text for each stage that it reaches."""

from __future__ import annotations

from typing import Any

from infradoc.remediation.journal import ChangeRecord
from infradoc_rules.model import Value


def told_change(record: ChangeRecord) -> dict[str, Any]:
    """Summary, knob, its value before and after this stage, finding and verdict of a change's last stage.

    The journal keeps the values of the change itself, also in the entry that takes it back: there they trade places,
    since a reader takes `A -> B` for what holds now.
    """
    last, back = record.last, record.last.kind == "undone"
    moves = [(knob, new, old) if back else (knob, old, new) for knob, old, new in record.intent.moves]
    stage = f"verdict {record.verdict}" if last.kind == "verdict" else str(last.kind)
    return {
        "summary": f"{stage}: " + ", ".join(f"{knob} {_shown(old)} -> {_shown(new)}" for knob, old, new in moves),
        "knob": record.intent.knob,
        "old": moves[0][1],
        "new": moves[0][2],
        "finding": last.finding,
        "verdict": record.verdict,
    }


def _shown(value: Value | None) -> str:
    return "unset" if value is None else str(value)
