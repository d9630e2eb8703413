"""The types that flow through infradoc: series, events and facts in; findings out.

Standard library only, frozen, and imported by everything above. Canonical names live in `signals.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Severity = Literal["info", "warning", "critical"]
Role = Literal["root", "symptom"]
Change = Literal["increase", "decrease", "set", "enable", "disable", "fix"]
Risk = Literal["read_only", "reversible", "disruptive"]
Value = float | int | str | bool

SEVERITY_RANK: Mapping[str, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True, slots=True)
class Series:
    """One labelled time series.

    `times` are Unix seconds, strictly increasing; `values` are float64 of the same length. A stale marker is the
    NaN whose bits are 0x7ff0000000000002 (Prometheus' StaleNaN); any other NaN is a measured NaN.
    """

    name: str
    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Event:
    """One typed row from a log, a device or the engine. `order` is its place in the artefact, always known."""

    name: str
    order: int
    fields: Mapping[str, Value] = field(default_factory=dict)
    time: float | None = None  # Unix seconds
    phase: str | None = None  # a name of signals.yaml `phases`
    source: str | None = None  # "server.log:12"
    text: str | None = None  # the line, capped
    repeat: int = 1  # how many alike rows this one stands for; `count()` adds them up


@dataclass(frozen=True, slots=True)
class Fact:
    """One piece of configuration or environment. `name` is a canonical knob, or a dotted name such as `gpu.name`."""

    name: str
    value: Value
    origin: Literal["flag", "config", "log", "default", "api", "metrics", "file", "derived"]
    source: str | None = None


class SignalFrame(Protocol):
    """What a rule may look at: one target at one moment. Read-only."""

    @property
    def now(self) -> float:
        """Evaluation time, Unix seconds."""

    @property
    def window(self) -> float:
        """The value of `$window` in seconds: at least 4 sampling periods, 10 s at 1 s sampling."""

    @property
    def period(self) -> float:
        """Sampling period in seconds."""

    @property
    def history(self) -> float:
        """Seconds from the first look at the target until now; 0 with none."""

    @property
    def system(self) -> str | None:
        """vllm, sglang, tgi, llamacpp, lmdeploy, trtllm, ollama, infradoc; None when not recognised."""

    @property
    def events(self) -> Sequence[Event]:
        """Events in order."""

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Facts by name."""

    def select(self, name: str) -> Sequence[Series]:
        """All series of one canonical name (histograms under `_bucket`, `_sum`, `_count`), samples up to `now`.

        Empty when there is no data. Where `signals.yaml` says zero_if_sibling_present and a sibling is there, a
        series without labels that is 0 at every scrape is returned instead.
        """


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reading that speaks for (or, with negative weight, against) a finding."""

    text: str
    source: str | None = None  # "server.log:11", or the target's source name
    signal: str | None = None
    value: float | None = None
    unit: str | None = None
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Action:
    """One change that would help, as report v1 shows it. `knob` is canonical, `flag` what this engine's user types."""

    knob: str
    change: Change
    why: str
    from_value: Value | None = None
    to_value: Value | None = None
    flag: str | None = None
    live: bool = False
    risk: Risk = "reversible"
    cost: str = ""
    name: str = ""  # the action's name in infradoc_rules.actions
    also: tuple[tuple[str, Value], ...] = ()  # further knobs of the same change with their values: all or nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause with its evidence. Texts are in the language asked for."""

    id: str
    severity: Severity
    confidence: float
    title: str
    cause: str
    impact: str
    falsifier: str
    role: Role = "root"
    explains: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[Action, ...] = ()
    playbook: str = ""
