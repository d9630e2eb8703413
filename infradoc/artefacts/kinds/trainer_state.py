"""`trainer_state.json` of the transformers Trainer (also as LLaMA-Factory, TRL and others write it)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans
from infradoc_rules.model import Event, Value

_FIELDS = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "epoch": "epoch",
    "step": "step",
}


class TrainerStateKind:
    """A state file: an object with `log_history`."""

    name = "trainer_state"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Every state object that begins at the start of a line."""
        if not any('"log_history"' in line for line in lines):
            return []
        return json_spans(lines, _is_state)

    def read(self, segment: Segment) -> Artefact:
        """One `train_config` that marks the run, then each logged loss: a `train_step`, or an `eval_loss`."""
        out = Artefact()
        try:
            state = json.loads("\n".join(segment.lines))
        except (ValueError, RecursionError):
            out.unparsed = len(segment.lines)
            return out
        if not _is_state(state):
            return out
        places = _places(segment)
        out.events.append(Event("train_config", 0, _settings(state), source=segment.place(0), text="log_history"))
        rows = [row for row in state["log_history"] if isinstance(row, dict) and ("loss" in row or "eval_loss" in row)]
        for index, row in enumerate(rows):
            place = places[index] if index < len(places) else segment.place(0)
            out.events += _logged(row, place)
        return out


def _logged(row: Mapping[str, Any], place: str) -> list[Event]:
    text = json.dumps(row)[:400]
    held_out = row.get("eval_loss")
    if "loss" in row:
        return [Event("train_step", 0, _numbers(row), source=place, text=text)]
    if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not math.isfinite(held_out):
        return []
    return [Event("eval_loss", 0, {**_numbers(row), "loss": float(held_out)}, source=place, text=text)]


def _is_state(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("log_history"), list)


def _settings(state: Mapping[str, Any]) -> dict[str, Value]:
    batch = state.get("train_batch_size")
    return {"batch": batch} if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0 else {}


def _numbers(row: Mapping[str, Any]) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for key, name in _FIELDS.items():
        value = row.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            out[name] = value if math.isfinite(value) else str(float(value))
        elif isinstance(value, str) and value.lower() in ("nan", "inf", "-inf"):
            out[name] = value.lower()
    return out


def _places(segment: Segment) -> list[str]:
    """Where each loss stands, in order: one such key a line at most in every way of writing the file."""
    keys = ('"loss"', '"eval_loss"')
    return [segment.place(index) for index, line in enumerate(segment.lines) if any(key in line for key in keys)]
