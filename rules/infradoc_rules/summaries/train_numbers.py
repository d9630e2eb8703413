"""Numbers of a training run that break, and the loss scaler of float16."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infradoc_rules.model import Event, Fact

_BAD_TAIL = 3  # logged steps in a row up to the end
_LOST_TAIL = 2  # those without a loss and without a gradient: each stands for all steps since the one logged before
_SETTLING = 24  # skips: 2^32 halves to 2^8 with so many
_SMALL_SCALE = 2.0


def numbers(events: Sequence[Event]) -> Iterable[Fact]:
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
    lost = next((event for event in overflow if event.fields.get("what") in ("eval", "fatal")), None)
    # Of a progress bar only the last state is left: one NaN, and no step that was sound.
    only = 0 < tail == len(steps) and isinstance(steps[-1].fields.get("loss"), str)
    if tail >= _BAD_TAIL or only or (tail >= _LOST_TAIL and all(map(_is_lost, steps[-tail:]))):
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


def _is_lost(step: Event) -> bool:
    """Neither the loss nor the gradient is a number; a trainer that leaves NaN out of its mean logs the loss as 0."""
    loss, norm = step.fields.get("loss"), step.fields.get("grad_norm")
    return isinstance(norm, str) and "nan" in norm.lower() and (isinstance(loss, str) or loss == 0)


def _scaler(events: Sequence[Event], overflow: Sequence[Event]) -> tuple[str | None, Event | None]:
    floor = next((event for event in overflow if event.fields.get("what") == "floor"), None)
    if floor is not None:
        return "skipping", floor
    nans = [event for event in overflow if event.fields.get("what") == "nan"]
    counted = sum(n for event in nans if isinstance(n := event.fields.get("skipped", 1), int))
    if counted >= _BAD_TAIL and not _stepped_after(events, nans[-1]):
        return "broken", nans[-1]
    scales = [event for event in overflow if event.fields.get("what") == "scale"]
    if scales and scales[-1].fields.get("loss_scale") == 0:
        return "skipping", scales[-1]
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
    # An iteration without a step prints no loss; its time is there.
    timed = [event for event in events if event.name == "train_timer" and event.fields.get("name") == "iteration"]
    steps = max([event for event in events if event.name == "train_step"], timed, key=len)
    late = steps[len(steps) // 10 :]
    if not counted or len(late) < _BAD_TAIL:
        return 0.0
    places = {event.source for event in counted}
    return sum(step.source in places for step in late) / len(late)
