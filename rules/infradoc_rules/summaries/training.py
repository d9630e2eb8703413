"""What training logs say when they are read together: facts train.*.

train.loss_scaling, train.sync and train.numbers are verdicts; "unknown" where nothing decides, and nothing at all
where no line of training was read.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.loss_scaling import loss_scaling
from infradoc_rules.summaries.runs import Run, accumulations, runs_of, steps_once
from infradoc_rules.summaries.train_numbers import numbers

_OWN = frozenset({"train_step", "train_overflow", "train_config", "train_timer", "train_code", "train_profile"})
_SYNC_POWER = 0.93  # step time ratio to the power of accumulation; communication saved shows as less
_SHARE = 0.25  # of a micro-step


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """train.loss_scaling, train.sync, train.numbers, train.precision and the figures behind them."""
    if not any(event.name in _OWN for event in events):
        return
    events = steps_once(events)
    runs = runs_of(events)
    named = accumulations(events)
    yield Fact("train.precision", _precision(events, facts), "derived")
    if named:
        yield Fact("train.accumulation", named[0], "derived")
    yield from loss_scaling(runs, named)
    yield from _sync(events, facts, runs, named)
    yield from numbers(events)


def _precision(events: Sequence[Event], facts: Mapping[str, Fact]) -> str:
    """fp16, bf16 or unknown; the last statement counts."""
    stated = [e.fields["precision"] for e in events if e.name == "train_config" and "precision" in e.fields]
    if stated:
        return str(stated[-1])
    fact = facts.get("bf16")
    if fact is not None and isinstance(fact.value, bool):
        return "bf16" if fact.value else "fp16"
    skipped = any(event.name == "train_overflow" and "loss_scale" in event.fields for event in events)
    return "fp16" if skipped else "unknown"  # only float16 needs a loss scaler


def _sync(
    events: Sequence[Event], facts: Mapping[str, Fact], runs: Sequence[Run], named: Sequence[int]
) -> Iterable[Fact]:
    """train.sync: "every_micro_step" where accumulation saves no communication although there is some to save."""
    verdict, place, told_by = "unknown", None, "times"
    share = _allreduce_share(events)
    share = share if share is not None else _profiled_share(events, named)
    if share is not None and named and named[0] > 1:
        verdict = "every_micro_step" if share > _SHARE else "sound"
        yield Fact("train.allreduce_share", round(share, 3), "derived")
    for first, second in combinations(runs, 2):
        power = _time_power(first, second, named)
        if power is None or verdict == "every_micro_step":
            continue
        yield Fact("train.step_power", round(power, 3), "derived", first.steps[0].source)
        verdict = "every_micro_step" if power >= _SYNC_POWER and _over_network(facts) else "sound"
        place = max(first, second, key=lambda run: run.accumulation or 0).steps[0].source
    if verdict == "unknown" and named and named[0] > 1 and _over_network(facts):
        each = next((e for e in events if e.name == "train_config" and e.fields.get("sync") == "each_batch"), None)
        if each is not None:
            verdict, place, told_by = "every_micro_step", each.source, "setting"
    if verdict == "unknown" and _over_network(facts):
        loop = _undeferred(events)
        if loop is not None:
            verdict, place, told_by = "every_micro_step", loop.source, "code"
    yield Fact("train.sync_by", told_by, "derived", place)
    yield Fact("train.sync", verdict, "derived", place)


def _undeferred(events: Sequence[Event]) -> Event | None:
    """The backward pass of a loop over micro-steps in code, where nothing in it puts the reduction off."""
    code = {str(e.fields.get("what")): e for e in reversed(events) if e.name == "train_code"}
    return code["backward"] if {"wrapped", "backward", "window"} <= code.keys() and "deferred" not in code else None


def _over_network(facts: Mapping[str, Fact]) -> bool:
    """Whether gradients leave the host: there is communication worth saving."""
    nodes = [facts[name].value for name in ("train.nodes", "comm.nodes") if name in facts]
    several = any(isinstance(count, int) and count > 1 for count in nodes)
    return several or "train.network" in facts


def _time_power(first: Run, second: Run, named: Sequence[int]) -> float | None:
    """log(step time ratio) / log(accumulation ratio); the longer step is that of the larger one where none is named."""
    ours, theirs = first.accumulation, second.accumulation
    one, two = first.step_seconds, second.step_seconds
    if ours is None and theirs is None and len(named) == 2 and one and two and min(one, two) > 0:
        return abs(math.log(one / two)) / math.log(named[0] / named[1])
    if ours is None or theirs is None or ours == theirs or not one or not two or min(one, two) <= 0:
        return None
    return math.log(one / two) / math.log(ours / theirs)


def _profiled_share(events: Sequence[Event], named: Sequence[int]) -> float | None:
    """The share of a profiled optimizer step, where the reductions are a multiple of its micro-steps."""
    if not named or named[0] < 2:
        return None
    rows = [event.fields for event in events if event.name == "train_profile"]
    shares = [float(row["share"]) for row in rows if row["calls"] and row["calls"] % named[0] == 0]
    return max(shares) if shares and max(shares) > _SHARE else None


def _allreduce_share(events: Sequence[Event]) -> float | None:
    """The median share of reducing gradients in a micro-step, over all micro-steps; None without these timers."""
    parts: dict[str, list[float]] = {"forward": [], "backward": [], "allreduce": []}
    for event in events:
        if event.name == "train_timer" and event.fields.get("name") in parts:
            parts[str(event.fields["name"])].append(float(event.fields["seconds"]))
    if len(parts["allreduce"]) < 2 or not parts["backward"]:
        return None
    work = statistics.median(parts["backward"]) + (statistics.median(parts["forward"]) if parts["forward"] else 0.0)
    shares = [spent / (spent + work) for spent in parts["allreduce"] if spent + work > 0]
    return statistics.median(shares) if shares else None
