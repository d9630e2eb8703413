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
from infradoc_rules.summaries.runs import Run, accumulations, runs_of

_OWN = frozenset({"train_step", "train_overflow", "train_config", "train_timer"})
_PLAUSIBLE = 13.0  # a fresh model starts at the logarithm of its vocabulary: 12.2 for 200,000 tokens
_LEAST = 0.2
_SAME_POWER = (0.6, 1.5)  # loss ratio = accumulation ratio to this power: 1 when losses are added up, 0 when averaged
_SYNC_POWER = 0.93  # step time ratio to the power of accumulation; communication saved shows as less
_BAD_TAIL = 3  # logged steps in a row up to the end
_SETTLING = 24  # skips: 2^32 halves to 2^8 with so many
_SMALL_SCALE = 2.0
_SHARE = 0.25  # of a micro-step


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """train.loss_scaling, train.sync, train.numbers, train.precision and the figures behind them."""
    if not any(event.name in _OWN for event in events):
        return
    runs = runs_of(events)
    named = accumulations(events)
    yield Fact("train.precision", _precision(events, facts), "derived")
    if named:
        yield Fact("train.accumulation", named[0], "derived")
    yield from _loss_scaling(runs, named)
    yield from _sync(events, facts, runs, named)
    yield from _numbers(events)


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


def _loss_scaling(runs: Sequence[Run], named: Sequence[int]) -> Iterable[Fact]:
    """ "multiplied", "divided" or "sound" by comparing runs; "multiplied" also where one loss alone is impossible."""
    verdict, place = "unknown", None
    for first, second in combinations(runs, 2):
        power = _loss_power(first, second, named)
        if power is None:
            continue
        low, high = _SAME_POWER
        verdict = "multiplied" if low <= power <= high else "divided" if -high <= power <= -low else "sound"
        place = first.steps[0].source
        if verdict != "sound":
            ratio = (first.first_loss or 1.0) / (second.first_loss or 1.0)
            yield Fact("train.loss_ratio", round(max(ratio, 1 / ratio), 2), "derived", place)
            break
    for run in runs if verdict == "unknown" else ():
        loss, accumulation = run.first_loss, run.accumulation
        if loss is None or accumulation is None or accumulation < 3 or loss <= _PLAUSIBLE:
            continue
        if _LEAST < loss / accumulation < _PLAUSIBLE:
            verdict, place = "multiplied", run.steps[0].source
    yield Fact("train.loss_scaling", verdict, "derived", place)
    losses = [run.first_loss for run in runs if run.first_loss is not None]
    if losses:
        yield Fact("train.first_loss", max(losses), "derived", runs[0].steps[0].source)


def _loss_power(first: Run, second: Run, named: Sequence[int]) -> float | None:
    """log(loss ratio) / log(accumulation ratio) at the first step; None where it cannot be formed.

    When only the two numbers of steps are known and not whose they are, a ratio of losses that equals theirs tells.
    """
    one, two = first.first_loss, second.first_loss
    if not one or not two or one <= 0 or two <= 0:
        return None
    ours, theirs = first.accumulation, second.accumulation
    if ours is not None and theirs is not None:
        return math.log(one / two) / math.log(ours / theirs) if ours != theirs else None
    if ours is None and theirs is None and len(named) == 2:
        return abs(math.log(one / two)) / math.log(named[0] / named[1])
    return None


def _sync(
    events: Sequence[Event], facts: Mapping[str, Fact], runs: Sequence[Run], named: Sequence[int]
) -> Iterable[Fact]:
    """ "every_micro_step" where accumulation saves no communication although there is some to save."""
    verdict, place = "unknown", None
    share = _allreduce_share(events)
    if share is not None and named and named[0] > 1:
        verdict = "every_micro_step" if share > _SHARE else "sound"
        yield Fact("train.allreduce_share", round(share, 3), "derived")
    for first, second in combinations(runs, 2):
        power = _time_power(first, second)
        if power is None or verdict == "every_micro_step":
            continue
        yield Fact("train.step_power", round(power, 3), "derived", first.steps[0].source)
        verdict = "every_micro_step" if power >= _SYNC_POWER and _over_network(facts) else "sound"
        place = max(first, second, key=lambda run: run.accumulation or 0).steps[0].source
    if verdict == "unknown" and named and named[0] > 1 and _over_network(facts):
        each = next((e for e in events if e.name == "train_config" and e.fields.get("sync") == "each_batch"), None)
        verdict, place = ("every_micro_step", each.source) if each is not None else (verdict, place)
    yield Fact("train.sync", verdict, "derived", place)


def _over_network(facts: Mapping[str, Fact]) -> bool:
    """Whether gradients leave the host: there is communication worth saving."""
    nodes = [facts[name].value for name in ("train.nodes", "comm.nodes") if name in facts]
    several = any(isinstance(count, int) and count > 1 for count in nodes)
    return several or "train.network" in facts


def _time_power(first: Run, second: Run) -> float | None:
    ours, theirs = first.accumulation, second.accumulation
    one, two = first.median("seconds"), second.median("seconds")
    if ours is None or theirs is None or ours == theirs or not one or not two:
        return None
    return math.log(one / two) / math.log(ours / theirs)


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


def _numbers(events: Sequence[Event]) -> Iterable[Fact]:
    """ "broken" (zero or no loss up to the end), "skipping" (the scaler never settles), "settled" or "sound"."""
    steps = [event for event in events if event.name == "train_step"]
    overflow = [event for event in events if event.name == "train_overflow"]
    tail = 0
    for step in reversed(steps):
        if not _is_broken(step):
            break
        tail += 1
    place = steps[-tail].source if tail else None
    verdict = "sound" if steps else "unknown"
    scaler, event = _scaler(events, overflow)
    lost = next((event for event in overflow if event.fields.get("what") == "eval"), None)
    if tail >= _BAD_TAIL:
        verdict = "broken"
    elif lost is not None:
        verdict, place = "broken", lost.source
    elif scaler is not None:
        verdict, place = scaler, event.source if event is not None else None
    yield Fact("train.numbers", verdict, "derived", place)
    yield Fact("train.bad_steps", tail, "derived", place)


def _is_broken(step: Event) -> bool:
    """NaN, or the 0 that a trainer logs in its place. A loss of 0 with a finite gradient is meant (policy gradients),
    one with a gradient of exactly 0 has no labels left.
    """
    loss, norm = step.fields.get("loss"), step.fields.get("grad_norm")
    return isinstance(loss, str) or isinstance(norm, str) or (loss == 0 and norm is None)  # a text is "nan" or "inf"


def _scaler(events: Sequence[Event], overflow: Sequence[Event]) -> tuple[str | None, Event | None]:
    floor = next((event for event in overflow if event.fields.get("what") == "floor"), None)
    if floor is not None:
        return "skipping", floor
    nans = [event for event in overflow if event.fields.get("what") == "nan"]
    if len(nans) >= _BAD_TAIL and not _stepped_after(events, nans[-1]):
        return "broken", nans[-1]
    skips = [event for event in overflow if event.fields.get("what") == "skipped"]
    if not skips:
        return None, None
    last = skips[-1]
    scale = last.fields.get("loss_scale")
    if isinstance(scale, float) and scale <= _SMALL_SCALE:
        return "skipping", last
    endless = len(_of_rank_zero(skips)) > _SETTLING and not _stepped_after(events, last)
    if endless or _megatron_share(events, skips) > 0.5:
        return "skipping", last
    return "settled", last


def _of_rank_zero(skips: Sequence[Event]) -> list[Event]:
    """Skips once each: every rank may print them."""
    ranks = {event.fields.get("rank") for event in skips}
    return [event for event in skips if event.fields.get("rank") == skips[0].fields.get("rank")] if ranks else []


def _stepped_after(events: Sequence[Event], event: Event) -> bool:
    return any(step.name == "train_step" and step.order > event.order for step in events)


def _megatron_share(events: Sequence[Event], skips: Sequence[Event]) -> float:
    """Share of logged iterations that were skipped, where the trainer counts them; the first tenth is settling."""
    counted = [event for event in skips if "skipped" in event.fields]
    steps = [event for event in events if event.name == "train_step"]
    late = steps[len(steps) // 10 :]
    if not counted or len(late) < _BAD_TAIL:
        return 0.0
    places = {event.source for event in counted}
    return sum(step.source in places for step in late) / len(late)
