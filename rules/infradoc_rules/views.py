"""Series that are views of events and facts, so that PromQL can read a log line's count or a knob's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infradoc_rules.model import Event, Fact, Series

VIEW_NAMES = frozenset({"config_value", "config_info", "log_event_total", "log_value"})


def config_series(facts: Mapping[str, Fact], times: Sequence[float]) -> list[Series]:
    """`config_value{knob, origin}` for each number among the facts, constant at `times` (Unix seconds)."""
    return [
        Series("config_value", {"knob": fact.name, "origin": fact.origin}, times, [float(fact.value)] * len(times))
        for fact in facts.values()
        if isinstance(fact.value, int | float) and not isinstance(fact.value, bool)
    ]


def config_info_series(facts: Mapping[str, Fact], times: Sequence[float]) -> list[Series]:
    """`config_info{knob, value, origin}` = 1 for each fact that is no number."""
    return [
        Series(
            "config_info",
            {"knob": fact.name, "value": str(fact.value).lower(), "origin": fact.origin},
            times,
            [1.0] * len(times),
        )
        for fact in facts.values()
        if isinstance(fact.value, str | bool)
    ]


def event_series(events: Sequence[Event], times: Sequence[float]) -> list[Series]:
    """`log_event_total{event}`: how many events of each name had happened by each of `times`.

    Only events with a time count: one without belongs to no place on the axis.
    """
    happened: dict[str, list[float]] = {}
    for event in events:
        if event.time is not None:
            happened.setdefault(event.name, []).append(event.time)
    return [
        Series("log_event_total", {"event": name}, times, _running_count(when, times))
        for name, when in happened.items()
    ]


def value_series(events: Sequence[Event], times: Sequence[float]) -> list[Series]:
    """`log_value{event, name}`: the last number that an event's field carried, from its time on."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for event in events:
        for field, value in event.fields.items():
            if event.time is not None and isinstance(value, int | float) and not isinstance(value, bool):
                points.setdefault((event.name, field), []).append((event.time, float(value)))
    out = []
    for (event_name, field), values in points.items():
        seen = [(time, _latest(values, time)) for time in times]
        kept = [(time, value) for time, value in seen if value is not None]
        labels = {"event": event_name, "name": field}
        out.append(Series("log_value", labels, [time for time, _ in kept], [value for _, value in kept]))
    return [series for series in out if series.times]


def view(name: str, events: Sequence[Event], facts: Mapping[str, Fact], times: Sequence[float]) -> list[Series]:
    """The series of one view name; `times` are the scrape times of the target."""
    if not times:
        return []
    if name == "config_value":
        return config_series(facts, times)
    if name == "config_info":
        return config_info_series(facts, times)
    if name == "log_event_total":
        return event_series(events, times)
    return value_series(events, times) if name == "log_value" else []


def _running_count(when: list[float], times: Sequence[float]) -> list[float]:
    ordered, count, out = sorted(when), 0, []
    for time in times:
        while count < len(ordered) and ordered[count] <= time:
            count += 1
        out.append(float(count))
    return out


def _latest(values: list[tuple[float, float]], time: float) -> float | None:
    seen = [value for when, value in values if when <= time]
    return seen[-1] if seen else None
