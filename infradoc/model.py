"""Agent-side types: Sample in, Plan and Verdict out. Standard library and rule types only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infradoc_rules.model import Action, Event, Fact, Value

VerdictName = Literal["fixed", "not_fixed", "worse", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one series under its canonical name. `time` is Unix seconds, `labels` are sorted pairs."""

    name: str
    labels: tuple[tuple[str, str], ...]
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at one source gave. `error` is one sentence when the look failed; samples may then be empty."""

    source: str  # "metrics", "host", "client", "log", "launch"
    time: float
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    seconds: float = 0.0  # how long the look took
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One change of a plan, with the way back. A step that moves several knobs moves them in one request."""

    finding: str
    action: Action
    undo_value: Value | None  # what the knob was; None when there is nothing to take back
    undo_also: tuple[tuple[str, Value | None], ...] = ()  # the same for the knobs of `action.also`


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered changes for one target; only the first applicable step is applied, the rest are alternatives."""

    target: str
    steps: tuple[PlanStep, ...]
    refused: tuple[tuple[str, str], ...] = ()  # (knob, why not): cooldown, not live, no permission


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of a verdict: before and after with the number of samples behind each."""

    name: str
    before: float | None
    after: float | None
    n_before: int
    n_after: int
    ratio_limit: float | None
    passed: bool | None  # None: not enough samples to say


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one change."""

    verdict: VerdictName
    checks: tuple[Check, ...]
    reason: str
    facts: Mapping[str, Value] = field(default_factory=dict)
