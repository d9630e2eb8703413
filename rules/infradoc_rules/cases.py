"""Cases files: made-up targets on which a rule must fire, stay quiet, or say that it cannot tell.

cases:
  - name: a pool that is too small
    expect: fires                    # fires | quiet | unknown | resolves
    system: infradoc                 # whose counters read 0 while absent; optional
    seconds: 70                      # length; one sample a period from 0 to there
    series:
      llm_requests_waiting: 8                          # a constant
      'llm_preemptions_total{reason="kv_full"}': 0+1x70  # start, step, count, as in promtool's tests
    histograms:
      llm_request_prompt_tokens: {24: 1.5, 32: 0.5}    # value: observations a second
    facts: {max_num_seqs: 16}
    events: [{name: preempted, fields: {count: 3}}]
    summaries: true                                    # derive facts from events, as a post-mortem does
    actions: {raise_kv_capacity: 1536}                 # the first ones advised, in order, with `to` (or null)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infradoc_rules.catalog import Catalog
from infradoc_rules.engine import evaluate_rules
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.lifecycle import RuleStates, StateName
from infradoc_rules.maps import SYSTEMS as MAPPED
from infradoc_rules.maps import load_map
from infradoc_rules.model import Event, Fact, Finding, Series, Value
from infradoc_rules.promql import STALE_NAN
from infradoc_rules.schema import Rule
from infradoc_rules.summaries import summarise
from infradoc_rules.yaml_file import YamlError, load_marked

START = 1_700_000_000.0  # Unix seconds of the first sample: any time that is not 0
_NAME = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_STEP = re.compile(
    r"^(?P<start>-?\d+(?:\.\d+)?(?:e-?\d+)?|_|stale)(?:(?P<step>[+-]\d+(?:\.\d+)?(?:e-?\d+)?))?(?:x(?P<count>\d+))?$"
)
BOUNDS = tuple(round(10 ** (exponent / 10), 6) for exponent in range(-30, 52))  # 1 ms to 126 k, factor 1.26


class CasesError(ValueError):
    """A cases file that does not follow the format; one sentence with file and line."""


class _EventRow(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    fields: dict[str, Value] = Field(default_factory=dict)
    at: float | None = None  # seconds after the start; None = an event without a time
    phase: str | None = None
    times: int = Field(default=1, ge=1, le=1000)


class Case(BaseModel):
    """One case as written."""

    model_config = ConfigDict(extra="forbid")
    name: str
    expect: Literal["fires", "quiet", "unknown", "resolves"]
    system: str | None = None
    seconds: float = Field(default=70, ge=0, le=100_000)
    period: float = Field(default=1.0, gt=0)
    window: float = Field(default=10.0, gt=0)
    series: dict[str, float | str] = Field(default_factory=dict)
    histograms: dict[str, dict[float, float]] = Field(default_factory=dict)
    facts: dict[str, Value] = Field(default_factory=dict)
    summaries: bool = False  # add what a post-mortem derives from the events and facts
    events: list[_EventRow] = Field(default_factory=list)
    actions: dict[str, Value | None] = Field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """What a rule did on a case. `problem` is one sentence when that is not what the case expects."""

    case: Case
    states: tuple[StateName, ...]
    finding: Finding | None
    missing: tuple[str, ...] = field(default=())
    problem: str | None = None


def load_cases(path: Path) -> list[Case]:
    """The cases in `path`. Raises CasesError."""
    try:
        marked = load_marked(path)
    except YamlError as error:
        raise CasesError(str(error)) from error
    rows = marked.data.get("cases") if isinstance(marked.data, dict) else None
    if not isinstance(rows, list) or not rows:
        raise CasesError(f"{path}, line 1: a cases file is `cases:` with a list of cases")
    cases = []
    for index, row in enumerate(rows):
        try:
            cases.append(Case.model_validate(row))
        except ValidationError as error:
            detail = error.errors()[0]
            where = ("cases", index, *detail["loc"])
            place = ".".join(str(part) for part in detail["loc"])
            raise CasesError(f"{path}, line {marked.line(where)}: {place}: {detail['msg'].lower()}") from error
    return cases


def run_case(rule: Rule, case: Case) -> CaseResult:
    """Evaluate the rule at every sampling time of the case and compare with what it expects."""
    whole = case_frame(case)
    states, seen = RuleStates(), []
    finding: Finding | None = None
    missing: tuple[str, ...] = ()
    for time in _times(case):
        result = evaluate_rules(Catalog((rule,)), whole.at(time), states).results[0]
        seen.append(result.state)
        finding, missing = result.finding or finding, result.missing
    outcome = CaseResult(case, tuple(seen), finding, missing)
    return CaseResult(case, outcome.states, finding, missing, _problem(outcome))


def _problem(result: CaseResult) -> str | None:
    case, last, fired = result.case, result.states[-1], "firing" in result.states
    right = {
        "fires": last == "firing",
        "quiet": not fired and last != "unknown",
        "unknown": last == "unknown" and not fired,
        "resolves": fired and last in ("ok", "resolved"),
    }[case.expect]
    if not right:
        lacking = f"; missing: {', '.join(result.missing)}" if result.missing else ""
        return f"{case.name}: expected {case.expect}, ended {last}{' after firing' if fired else ''}{lacking}"
    advised = [(action.name, action.to_value) for action in result.finding.actions] if result.finding else []
    wanted = list(case.actions.items())
    for (name, value), (got_name, got) in zip(wanted, advised, strict=False):
        if name != got_name or (value is not None and value != got):
            return f"{case.name}: expected advice {name} -> {value}, got {got_name} -> {got}"
    return f"{case.name}: expected advice {wanted}, got {advised}" if len(advised) < len(wanted) else None


def _times(case: Case) -> list[float]:
    return [START + index * case.period for index in range(int(case.seconds / case.period) + 1)]


def case_frame(case: Case) -> MemoryFrame:
    """The made-up target of a case at its end."""
    times = _times(case)
    series = [_series(text, notation, times) for text, notation in case.series.items()]
    for text, rates in case.histograms.items():
        series += _histogram(text, rates, times)
    facts = [Fact(name, value, "api") for name, value in case.facts.items()]
    events = _events(case)
    if case.summaries:
        facts = list(summarise(events, {fact.name: fact for fact in facts}, case.system).values())
    return MemoryFrame.build(
        series,
        now=times[-1],
        events=events,
        facts=facts,
        window=case.window,
        period=case.period,
        system=case.system,
        provides=load_map(case.system).provides if case.system in MAPPED else None,
    )


def _events(case: Case) -> list[Event]:
    rows = [row for row in case.events for _ in range(row.times)]
    return [
        Event(row.name, order, row.fields, None if row.at is None else START + row.at, row.phase, f"log:{order + 1}")
        for order, row in enumerate(rows)
    ]


def _series(text: str, notation: float | str, times: Sequence[float]) -> Series:
    name, labels = _parse_name(text)
    values = _expand(str(notation), len(times))
    kept = [(time, value) for time, value in zip(times, values, strict=False) if value is not None]
    return Series(name, labels, [time for time, _ in kept], [value for _, value in kept])


@lru_cache(maxsize=256)
def _parse_name(text: str) -> tuple[str, Mapping[str, str]]:
    match = _NAME.match(text)
    if match is None:
        raise CasesError(f'{text!r} is no series name such as llm_requests_running or name{{label="value"}}')
    return match["name"], dict(_LABEL.findall(match["labels"] or ""))


def _expand(notation: str, length: int) -> list[float | None]:
    """Values of promtool's notation, as many as given; a single constant fills the whole length."""
    parts = notation.split()
    matches = [_STEP.match(part) for part in parts]
    if not parts or not all(matches):
        raise CasesError(f"{notation!r} is no value notation such as 5, 0+2x70 or 1x10 _x5")
    if len(parts) == 1 and "x" not in parts[0] and matches[0] is not None and matches[0]["step"] is None:
        return [_number(parts[0])] * length
    out: list[float | None] = []
    for match in matches:
        assert match is not None
        start, step, count = match["start"], float(match["step"] or 0), int(match["count"] or 0)
        first = _number(start)
        out += [first if first is None or not step else first + index * step for index in range(count + 1)]
    return out


def _number(text: str) -> float | None:
    return None if text == "_" else STALE_NAN if text == "stale" else float(text)


def _histogram(text: str, rates: Mapping[float, float], times: Sequence[float]) -> list[Series]:
    """Cumulative buckets, sum and count of steady observations (value -> a second)."""
    name, labels = _parse_name(text)
    ages = [time - times[0] for time in times]
    out = []
    for bound in (*BOUNDS, float("inf")):
        rate = sum(per_second for value, per_second in rates.items() if value <= bound)
        le = "+Inf" if bound == float("inf") else format(bound, "g")
        out.append(Series(f"{name}_bucket", {**labels, "le": le}, times, [rate * age for age in ages]))
    total = sum(rates.values())
    weighted = sum(value * per_second for value, per_second in rates.items())
    out.append(Series(f"{name}_count", labels, times, [total * age for age in ages]))
    out.append(Series(f"{name}_sum", labels, times, [weighted * age for age in ages]))
    return out


def run_cases(rule: Rule, path: Path) -> list[CaseResult]:
    """All cases of one file on one rule. Raises CasesError."""
    return [run_case(rule, case) for case in load_cases(path)]


__all__ = ["Case", "CaseResult", "CasesError", "case_frame", "load_cases", "run_case", "run_cases"]
