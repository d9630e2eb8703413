"""The shape of a rule: plain dataclasses, so that who only judges rules loads no validator (0.1 s of every start).

`rule_file` reads files and checks them against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from infradoc_rules.model import Severity
from infradoc_rules.shape import Bounds, Part, Shorthand

ID_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"


@dataclass(frozen=True, slots=True)
class Text(Part):
    """One text in both languages. `{value}`, thresholds and `values` names are filled in, `{value:.0%}` formats."""

    en: Annotated[str, Bounds(min_length=1)]
    zh: Annotated[str, Bounds(min_length=1)]

    def get(self, lang: str) -> str:
        """The text in `lang`, English when it is not Chinese."""
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True, slots=True)
class Condition(Part):
    """One item of a `when`: PromQL over series (`expr`) or a match over events and facts (`match`)."""

    expr: str | None = None
    match: str | None = None
    text: Text | None = None
    signal: str | None = None  # canonical name that the value belongs to
    unit: str | None = None

    def __post_init__(self) -> None:
        if (self.expr is None) == (self.match is None):
            raise ValueError("needs exactly one of expr and match")


@dataclass(frozen=True, slots=True, kw_only=True)
class Support(Condition):
    """A sign that moves the log odds by `weight`: up under `supports`, down under `against`."""

    weight: float
    text: Text


Expression = Annotated[Condition, Shorthand("expr")]
Match = Annotated[Condition, Shorthand("match")]


@dataclass(frozen=True, slots=True)
class LiveBranch(Part):
    """One complete way to see the fault: every item must hold, on one engine rank."""

    when: Annotated[tuple[Expression, ...], Bounds(min_length=1)]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Live(Part):
    """Conditions over series. `any` lists branches of which each alone can see the fault; `when` is a single branch.

    for: sampling periods that the condition must go on beyond the first. keep: periods without it before the rule
    resolves. Every selector of a branch needs data, but for what stands behind `unless`.
    """

    when: tuple[Expression, ...] = ()
    any: tuple[LiveBranch, ...] = ()
    for_periods: Annotated[int, Bounds(ge=0, le=1000)] = 2
    keep: Annotated[int, Bounds(ge=0, le=1000)] = 2

    def __post_init__(self) -> None:
        if bool(self.when) == bool(self.any):
            raise ValueError("needs exactly one of when and any")

    @property
    def branches(self) -> tuple[LiveBranch, ...]:
        """The branches, whichever way they are written."""
        return self.any or (LiveBranch(when=self.when),)


@dataclass(frozen=True, slots=True)
class MatchBranch(Part):
    """One complete way to see the fault in events and facts."""

    when: Annotated[tuple[Match, ...], Bounds(min_length=1)]
    name: str = ""


@dataclass(frozen=True, slots=True)
class PostMortem(Part):
    """Conditions over events and facts, for logs and where the live signals are missing.

    What holds only here replaces the rule's own: severity (somebody asks because something is wrong), cause and its
    values (match texts), advise.
    """

    when: tuple[Match, ...] = ()
    any: tuple[MatchBranch, ...] = ()
    severity: Severity | None = None
    cause: Text | None = None
    values: dict[str, str] = field(default_factory=dict)  # name -> match text, for the cause
    advise: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.when) == bool(self.any):
            raise ValueError("needs exactly one of when and any")

    @property
    def branches(self) -> tuple[MatchBranch, ...]:
        """The branches, whichever way they are written."""
        return self.any or (MatchBranch(when=self.when),)


@dataclass(frozen=True, slots=True)
class VerifyMetric(Part):
    """What must be better after a fix: after / before at most or at least this ratio.

    quantile: of a histogram (or of client measurements); without it the counter's rate or the gauge's mean.
    class: only requests of this client class.
    """

    signal: str
    quantile: Annotated[float, Bounds(gt=0, lt=1)] | None = None
    at_most: Annotated[float, Bounds(gt=0)] | None = None
    at_least: Annotated[float, Bounds(gt=0)] | None = None
    request_class: str | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("needs exactly one of at_most and at_least")


@dataclass(frozen=True, slots=True)
class Verify(Part):
    """How a fix is judged, where it differs from the defaults. Times in seconds.

    errors_at_most: share of failed requests that is allowed after the fix; without it errors must not rise.
    cut_at_most: share of answered prompts that may still be cut after the fix; without it nobody asks.
    """

    metrics: tuple[VerifyMetric, ...] = ()
    throughput_at_least: Annotated[float, Bounds(gt=0)] = 0.95
    errors_at_most: Annotated[float, Bounds(ge=0, lt=1)] | None = None
    cut_at_most: Annotated[float, Bounds(ge=0, lt=1)] | None = None
    baseline: Annotated[float, Bounds(gt=0)] = 15.0
    hold: Annotated[float, Bounds(gt=0)] = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Part):
    """One rule file."""

    schema_version: Literal[1]
    id: Annotated[str, Bounds(pattern=ID_PATTERN)]
    title: Text
    severity: Severity
    maturity: Literal["experimental", "stable"] = "experimental"
    essential: bool = False  # a target is not called healthy while this rule cannot be judged
    thresholds: dict[str, float] = field(default_factory=dict)
    live: Live | None = None
    post_mortem: PostMortem | None = None
    prior: float = 0.0
    supports: tuple[Support, ...] = ()
    against: tuple[Support, ...] = ()
    explains: tuple[str, ...] = ()
    advise: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)  # name -> PromQL, for the texts
    cause: Text
    impact: Text
    falsifier: Text
    set_aside: Text | None = None  # what it would take, where it was considered and is not what was found
    false_alarms: tuple[str, ...] = ()
    verify: Verify = Verify()

    @property
    def advised(self) -> tuple[str, ...]:
        """All sizing functions, whichever part names them."""
        past = self.post_mortem.advise if self.post_mortem is not None else ()
        return tuple(dict.fromkeys((*self.advise, *past)))

    def promql(self) -> tuple[str, ...]:
        """The text of every PromQL expression in the rule."""
        items: list[Condition] = [*self.supports, *self.against]
        if self.live is not None:
            items += [item for branch in self.live.branches for item in branch.when]
        return (*(item.expr for item in items if item.expr is not None), *self.values.values())
