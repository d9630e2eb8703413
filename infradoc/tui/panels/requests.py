"""Requests one by one: those that run first, with their stages and why they lost their blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.strip import Strip

from infradoc.tui import paint
from infradoc.tui.panels.context import Context
from infradoc.tui.panels.ledger import letter
from infradoc.tui.words import named

_SHOWN = 200
_ORDER = {"running": 0, "preempted": 1, "swapped": 1, "waiting": 2, "finished": 9}
_COLUMNS = (("r_id", 10), ("r_state", 9), ("r_age", 7), ("r_tokens", 11), ("r_blocks", 6))


def paint_requests(context: Context) -> list[Strip]:
    """The table; one sentence where there is none."""
    rows = context.engine.requests
    if not rows:
        say = context.say
        text = (
            say["no_request"]
            if rows is not None
            else say["no_requests"].format(why=context.engine.why or say["asking"])
        )
        return [paint.strip([(row, context.palette.get("dim"))]) for row in paint.wrapped(text, context.width)]
    head = " ".join(paint.fitted(context.say[name], width) for name, width in _COLUMNS)
    head += f" {context.say['r_stages']} · {context.say['r_preempted']}"
    ordered = sorted(rows, key=place)
    body = [request_strip(row, context) for row in ordered[:_SHOWN]]
    return [paint.strip([(paint.fitted(head, context.width), context.palette.get("title"))]), *body]


def request_strip(row: Mapping[str, Any], context: Context) -> Strip:
    """One request."""
    finished = row.get("state") == "finished"
    known = row.get("finish_reason") if finished else None
    state = str(known or named(context.say, "rq", row.get("state", "")))
    spent = row.get("end_to_end_seconds") if finished else context.engine.now - received(row)
    tokens = f"{row.get('prompt_tokens', '-')}/{row.get('output_tokens', '-')}"
    texts = [
        paint.one_line(row.get("id", ""))[-10:],
        paint.one_line(state),
        paint.seconds(spent if isinstance(spent, int | float) else None),
        tokens,
        str(row.get("blocks", "-")),
    ]
    cells = " ".join(paint.fitted(text, width) for text, (_, width) in zip(texts, _COLUMNS, strict=True))
    dim = context.palette.get("dim" if finished else "text")
    lost = preempted(row)
    parts = [(cells + " ", dim), (stages(row), dim), (f" · {lost}" if lost else "", context.palette.get("critical"))]
    return paint.strip(parts, max(context.width, 110))


def place(row: Mapping[str, Any]) -> tuple[int, float]:
    """What runs first, then what waits, each with the oldest on top; of what has ended the newest."""
    order = _ORDER.get(str(row.get("state")), 3)
    return order, -received(row) if row.get("state") == "finished" else received(row)


def received(row: Mapping[str, Any]) -> float:
    """When the request came, Unix seconds."""
    value = row.get("received")
    return float(value) if isinstance(value, int | float) else 0.0


def stages(row: Mapping[str, Any]) -> str:
    """The longest stages with their letters: `Q 1.2 s  D 3.4 s`."""
    found = row.get("stages")
    known = (
        [(str(k), float(v)) for k, v in found.items() if isinstance(v, int | float)] if isinstance(found, dict) else []
    )
    longest = sorted((one for one in known if one[1] >= 0.001), key=lambda one: -one[1])[:4]
    return "  ".join(f"{letter(name)} {paint.seconds(value)}" for name, value in longest)


def preempted(row: Mapping[str, Any]) -> str:
    """How often the request lost its blocks, why, and for whom."""
    found = row.get("preemptions")
    known = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if not known:
        return ""
    last = known[-1]
    reasons = ", ".join(dict.fromkeys(paint.one_line(one.get("reason", "?")) for one in known))
    whom = last.get("for_request")
    return f"{len(known)}x {reasons}" + (f" for {paint.one_line(whom)[-8:]}" if whom else "")
