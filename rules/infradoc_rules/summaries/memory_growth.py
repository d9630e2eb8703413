"""Whether memory grows while the load stays: series of snapshots of one process, container or device.

Facts: growth.name?, growth.device? (it is a GPU's memory), growth.bytes?, growth.share? (of the first size),
growth.per_hour?, growth.samples?, growth.leaks (it rises from sample to sample to the end at constant load),
growth.hours_left? (until the limit).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import samples
from infradoc_rules.values import number

_LEAST_SAMPLES = 4
_FAR_SAMPLES = 3  # snapshots that lie more than _FAR_SECONDS apart in all, where each one is clearly above the last
_FAR_SECONDS = 5400.0
_FAR_STEP = 0.05
_LEAST_BYTES = 128 << 20
_LEAST_SHARE = 0.05
_RISES = 0.8  # of the steps
_LATE = 0.6  # of the mean rate that the last third must still have: a cache that fills flattens out
_LOAD = 2.0  # times the smallest that the largest batch may be
_WARM_SECONDS = 900.0  # below it every server still loads and warms up
_BUCKETS = 10  # means that a longer series is brought down to: what a snapshot catches goes up and down
_DEVICE_SAMPLES = 6
_DEVICE_SECONDS = 1800.0  # allocators of a device reach their peak in the first minutes of a load
_BUSIER = 1.5  # times the early utilization of a device from where on the load explains it

_IMAGES = lazy(
    r"(?i)\bvl\b|-vl|vision|llava|pixtral|internvl|minicpm-[vo]|phi-\d.*(?:vision|multimodal)|omni|mllama|ovis|molmo"
)

_HOST = "host"  # the name of what `free` says is taken

_OF_DEVICES = ("gpu_state", "gpu_process")  # their time is that of the reading

Points = list[tuple[float | None, float]]


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above, of the series that grew most."""
    series: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.name == "process_usage" and number(event.fields.get("bytes")) is not None:
            series[_key(event)].append(event)
    grown = [(name, rows) for name, rows in series.items() if len(rows) >= _LEAST_SAMPLES or _far_apart(rows)]
    grown = grown or _devices(events)
    if not grown:
        return
    name, rows = max(grown, key=lambda pair: _size(pair[1][-1]) - _size(pair[1][0]))
    device = rows[0].name in _OF_DEVICES
    points: Points = [(_seconds(event), _size(event)) for event in rows]
    first, last = points[0][1], points[-1][1]
    place = rows[-1].source
    yield Fact("growth.name", name, "derived", place)
    yield Fact("growth.device", device, "derived", place)
    yield Fact("growth.bytes", last - first, "derived", place)
    yield Fact("growth.share", (last - first) / first if first else 0.0, "derived", place)
    yield Fact("growth.samples", len(points), "derived", place)
    yield Fact("growth.multimodal", _multimodal(facts), "derived")
    hours = _hours(points)
    if hours:
        yield Fact("growth.per_hour", (last - first) / hours, "derived", place)
        limit = number(rows[-1].fields.get("total_bytes" if device else "limit_bytes"))
        if limit and last > first:
            yield Fact("growth.hours_left", max(limit - last, 0.0) / ((last - first) / hours), "derived", place)
    # What all of a host's programs hold also rises while a model is read: without times that cannot be told apart.
    told = name != _HOST or hours is not None
    leaks = told and _leaks(points, hours) and _constant_load(events, facts) and (not device or _as_busy(rows, hours))
    yield Fact("growth.leaks", leaks, "derived", place)


def _far_apart(rows: Sequence[Event]) -> bool:
    """Whether a few snapshots over hours show growth that no warm-up is."""
    hours = _hours([(_seconds(event), _size(event)) for event in rows])
    if len(rows) < _FAR_SAMPLES or hours is None or hours * 3600 < _FAR_SECONDS:
        return False
    return all(_size(after) >= (1 + _FAR_STEP) * _size(before) for before, after in pairwise(rows))


def _devices(events: Sequence[Event]) -> list[tuple[str, list[Event]]]:
    """The memory of each GPU, and of each process on one, over a series of readings."""
    series: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.name == "gpu_state" and number(event.fields.get("used_bytes")) is not None:
            series[f"GPU {event.fields.get('gpu', 0)}"].append(event)
        if event.name == "gpu_process" and number(event.fields.get("bytes")) is not None and event.time is not None:
            series[f"{_key(event)} on GPU {event.fields.get('gpu', 0)}"].append(event)
    return [(name, rows) for name, rows in series.items() if len(rows) >= _DEVICE_SAMPLES]


def _as_busy(rows: Sequence[Event], hours: float | None) -> bool:
    """Whether a device that was at work all along is about as busy at the end as at the start."""
    if hours is not None and hours * 3600 < _DEVICE_SECONDS:
        return False
    busy = [share for event in rows if (share := number(event.fields.get("utilization"))) is not None]
    third = len(busy) // 3
    if third == 0:
        return True
    early, late = sum(busy[:third]) / third, sum(busy[-third:]) / third
    return early > 0 and late <= _BUSIER * early


def _multimodal(facts: Mapping[str, Fact]) -> bool:
    """Whether the model takes images, video or audio, by its name or the settings that only such models have."""
    name = str(facts["model_checkpoint"].value) if "model_checkpoint" in facts else ""
    name = name or (str(facts["model.name"].value) if "model.name" in facts else "")
    return bool(_IMAGES.search(name)) or "limit_mm_per_prompt" in facts


def _key(event: Event) -> str:
    """A process by its number and program: what tools show of the arguments changes with the width of the window."""
    pid, name = event.fields.get("pid"), str(event.fields.get("name", "process"))
    return name if pid is None else f"{re.split(r'[. ]', name, maxsplit=1)[0]} {pid}"


def _seconds(event: Event) -> float | None:
    return event.time if event.name in _OF_DEVICES else number(event.fields.get("seconds"))


def _size(event: Event) -> float:
    return number(event.fields.get("used_bytes" if event.name == "gpu_state" else "bytes")) or 0.0


def _hours(points: Points) -> float | None:
    first, last = points[0][0], points[-1][0]
    return (last - first) / 3600 if first is not None and last is not None and last > first else None


def _leaks(points: Points, hours: float | None) -> bool:
    sizes = [size for _, size in points]
    grown = sizes[-1] - sizes[0]
    if grown < max(_LEAST_BYTES, _LEAST_SHARE * sizes[0]) or (hours is not None and hours * 3600 < _WARM_SECONDS):
        return False
    sizes = _means(sizes)
    grown = sizes[-1] - sizes[0]
    steps = [after - before for before, after in pairwise(sizes)]
    moves = [step for step in steps if step]
    if len(moves) < min(_LEAST_SAMPLES, len(points)) - 1 or sum(1 for step in moves if step > 0) < _RISES * len(moves):
        return False
    late = max(len(steps) // 3, 1)
    return sum(steps[-late:]) / late >= _LATE * grown / len(steps)


def _means(sizes: Sequence[float]) -> list[float]:
    """A long series as means of even parts."""
    if len(sizes) <= 2 * _BUCKETS:
        return list(sizes)
    cuts = [round(place * len(sizes) / _BUCKETS) for place in range(_BUCKETS + 1)]
    return [sum(sizes[start:end]) / (end - start) for start, end in pairwise(cuts)]


def _constant_load(events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Whether the batch stayed about as large as it was; true where nothing speaks of the load."""
    seen = [sample.running for sample in samples(events, facts)]
    if len(seen) < 3:
        return True
    third = max(len(seen) // 3, 1)
    early, late = max(seen[:third]), max(seen[-third:])
    return late <= _LOAD * max(early, 1.0)
