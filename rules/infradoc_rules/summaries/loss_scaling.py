"""The loss under gradient accumulation: added up, divided twice or sound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.runs import Run

# Of the accumulation: the ratio of the training loss to the one on held-out data, or its inverse.
_AS_FACTOR = (0.8, 1.25)
_PLAUSIBLE = 13.0  # a fresh model starts at the logarithm of its vocabulary: 12.2 for 200,000 tokens
_LEAST = 0.2
_SAME_EPOCH = 0.02
_CLEAR, _NEAR = 3, 1.15  # two runs of the same accumulation differ by no such factor by chance
_BEFORE_OVERFIT = 1.0  # epochs; later a low training loss is memory
_SAME_POWER = (0.6, 1.5)  # loss ratio = accumulation ratio to this power: 1 when losses are added up, 0 when averaged


def loss_scaling(runs: Sequence[Run], named: Sequence[int]) -> Iterable[Fact]:
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
        if loss is None or accumulation is None or accumulation < 3 or loss <= _PLAUSIBLE or _breaks(run):
            continue
        if _LEAST < loss / accumulation < _PLAUSIBLE:
            verdict, place = "multiplied", run.steps[0].source
    for run in runs if verdict == "unknown" else ():
        against = _against_held_out(run)
        if against is not None:
            verdict, ratio, step = against
            place = step.source
            yield Fact("train.held_out_ratio", round(max(ratio, 1 / ratio), 2), "derived", place)
            break
    yield Fact("train.loss_scaling", verdict, "derived", place)
    losses = [run.first_loss for run in runs if run.first_loss is not None]
    if losses:
        yield Fact("train.first_loss", max(losses), "derived", runs[0].steps[0].source)


def _breaks(run: Run) -> bool:
    """Whether a loss or a gradient is no number: a high loss before it is the first sign of that."""
    return any(isinstance(step.fields.get(name), str) for step in run.steps for name in ("loss", "grad_norm"))


def _against_held_out(run: Run) -> tuple[str, float, Event] | None:
    """The verdict, the ratio and the step where the training loss is the accumulation times (or a part of) the loss
    on held-out data, which is computed in one piece; None where it is not, or where nothing is known.
    """
    accumulation = run.accumulation
    if accumulation is None or accumulation < 3:
        return None
    low, high = _AS_FACTOR
    found: list[tuple[str, float, Event]] = []
    for step, held_out in run.held_out:
        loss, other = step.fields.get("loss"), held_out.fields.get("loss")
        epoch = step.fields.get("epoch")
        if not isinstance(loss, int | float) or not isinstance(other, int | float) or loss <= 0 or other <= 0:
            return None
        ratio = loss / other
        if low <= ratio / accumulation <= high:
            found.append(("multiplied", ratio, step))
        elif low <= 1 / ratio / accumulation <= high and isinstance(epoch, int | float) and epoch <= _BEFORE_OVERFIT:
            found.append(("divided", ratio, step))
    same = found and len({verdict for verdict, _, _ in found}) == 1 and 2 * len(found) >= len(run.held_out)
    return found[0] if same else None


def _same_time(first: Run, second: Run) -> bool:
    """Whether both runs logged their first loss at one epoch: a run that goes on starts with a lower one."""
    epochs = [run.steps[0].fields.get("epoch") for run in (first, second)]
    one, two = (float(epoch) if isinstance(epoch, int | float) else None for epoch in epochs)
    return one is not None and two is not None and abs(one - two) <= _SAME_EPOCH


def _loss_power(first: Run, second: Run, named: Sequence[int]) -> float | None:
    """log(loss ratio) / log(accumulation ratio) at the first step; None where it cannot be formed.

    When only the two numbers of steps are known and not whose they are, a ratio of losses that equals theirs tells.
    """
    one, two = first.first_loss, second.first_loss
    if not one or not two or one <= 0 or two <= 0:
        return None
    ours, theirs = first.accumulation, second.accumulation
    if ours is not None and theirs is not None:
        if ours == theirs:  # the same run with two versions of the trainer
            same = ours >= _CLEAR and _same_time(first, second)
            return 1.0 if same and 1 / _NEAR <= max(one / two, two / one) / ours <= _NEAR else None
        return math.log(one / two) / math.log(ours / theirs)
    if ours is None and theirs is None and len(named) == 2:
        return abs(math.log(one / two)) / math.log(named[0] / named[1])
    return None
