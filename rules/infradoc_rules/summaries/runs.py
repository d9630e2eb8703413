"""Training runs as the artefacts tell them apart: one run for each log, state file or change of accumulation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event

_HELD_OUT = lazy(r"\b(?:eval(?:uation)?|val(?:id(?:ation)?)?|test)[_/ ]$")


@dataclass(slots=True)
class Run:
    """The logged steps of one run. `accumulation` and `batch` stay None while they are not known."""

    source: str
    steps: list[Event] = field(default_factory=list)
    accumulation: int | None = None
    batch: int | None = None
    held_out: list[tuple[Event, Event]] = field(default_factory=list)  # (last step before it, evaluation)

    @property
    def first_loss(self) -> float | None:
        """The loss at the first logged step; None when it is missing or no number."""
        return _number(self.steps[0], "loss") if self.steps else None

    def median(self, name: str) -> float | None:
        """The median of a field over the steps that have it."""
        values = [value for step in self.steps if (value := _number(step, name)) is not None]
        return statistics.median(values) if values else None

    @property
    def step_seconds(self) -> float | None:
        """The median time of an optimizer step: as logged, or from the rate that a run is summed up with."""
        rate = self.median("steps_rate")
        return self.median("seconds") or (1 / rate if rate else None)


def steps_once(events: Sequence[Event]) -> list[Event]:
    """The events with what several patterns say of one logged step joined, and without losses on held-out data."""
    out: list[Event] = []
    last: int | None = None
    for event in events:
        if event.name == "train_step":
            if _is_held_out(event.text or ""):
                continue
            if last is not None and _same_step(out[last], event):
                out[last] = replace(out[last], fields={**event.fields, **out[last].fields})
                continue
            last = len(out)
        out.append(event)
    return out


def _is_held_out(text: str) -> bool:
    """Whether the first loss that the line names is one of an evaluation."""
    before, found, _ = text.lower().partition("loss")
    return bool(found) and _HELD_OUT.search(before) is not None


def _same_step(one: Event, other: Event) -> bool:
    """Two patterns on one line, of which the first is the more exact; a file on one line numbers its steps."""
    ours, theirs = one.fields.get("step"), other.fields.get("step")
    return one.source == other.source and (ours == theirs or ours is None or theirs is None)


def runs_of(events: Sequence[Event]) -> list[Run]:
    """The runs that logged steps, in order, with what the configurations say about each."""
    found: list[Run] = []
    settings: list[Event] = []
    ahead: list[Event] = []  # settings since the last step: of the run that begins with the next one
    for event in steps_once(events):
        if event.name == "eval_loss" and found and found[-1].steps and _file(event) == found[-1].source:
            found[-1].held_out.append((found[-1].steps[-1], event))
        elif event.name == "train_config":
            if event.text == "log_history":
                found.append(Run(_file(event), batch=_count(event, "batch")))
            else:
                settings.append(event)
                ahead.append(event)
        elif event.name == "train_step":
            own = [setting for setting in ahead if _file(setting) == _file(event)]
            if not found or _begins(event, found[-1], _only(own, "accumulation")):
                found.append(Run(_file(event), [], _only(own, "accumulation"), _only(own, "batch")))
            found[-1].steps.append(event)
            found[-1].accumulation = found[-1].accumulation or _count(event, "accumulation")
            ahead = []
    found = [run for run in found if run.steps]
    _settle(found, settings)
    return found


def accumulations(events: Sequence[Event]) -> list[int]:
    """Every number of accumulation steps that is named anywhere, largest first."""
    counts = {_count(e, "accumulation") for e in events if e.name in ("train_config", "train_step")}
    return sorted((count for count in counts if count), reverse=True)


def _begins(event: Event, run: Run, stated: int | None) -> bool:
    """Whether a step belongs to a new run: another file, a counter that went back, another accumulation.

    stated: the accumulation that was announced since the last step.
    """
    if _file(event) != run.source:
        return True
    accumulation = _count(event, "accumulation") or stated
    if accumulation is not None and run.accumulation is not None and accumulation != run.accumulation:
        return True
    if not run.steps:
        return False
    for name in ("step", "epoch"):
        now, before = _number(event, name), _number(run.steps[-1], name)
        if now is not None and before is not None:
            return now < before
    return False


def _settle(runs: Sequence[Run], settings: Sequence[Event]) -> None:
    """Give each run its accumulation: from its own file, from the only value, or by its batch size.

    Runs compared with each other keep the batch of a whole step: the one with the smaller micro-batch accumulates more.
    """
    for run in runs:
        own = [event for event in settings if _file(event) == run.source]
        run.accumulation = run.accumulation or _only(own, "accumulation")
        run.batch = run.batch or _only(own, "batch")
    named = sorted({n for event in settings if (n := _count(event, "accumulation"))}, reverse=True)
    unknown = [run for run in runs if run.accumulation is None]
    if len(unknown) == 1 and len(runs) == 1 and len(named) == 1:
        unknown[0].accumulation = named[0]
    if len(unknown) == len(runs) == len(named) > 1 and all(run.batch for run in runs):
        by_batch = sorted(runs, key=lambda run: run.batch or 0)
        if len({run.batch for run in runs}) == len(runs):
            for run, accumulation in zip(by_batch, named, strict=True):
                run.accumulation = accumulation


def _only(events: Sequence[Event], name: str) -> int | None:
    values = {value for event in events if (value := _count(event, name))}
    return values.pop() if len(values) == 1 else None


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def _count(event: Event, name: str) -> int | None:
    value = event.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(event: Event, name: str) -> float | None:
    value = event.fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
