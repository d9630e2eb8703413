"""Devices: which is slowed down and by what, and which fails.

Facts, stated unless marked ? once a device was read (gpu.throttled) or any event was (gpu.failed, gpu.failures):
    gpu.throttled       "heat", "brake", "power", "clocks" (fixed below the maximum) or "" while the device works
    gpu.throttled_gpu?  its number; gpu.clock_share? SM clock over its maximum; gpu.hot? degrees C
    gpu.power_limit?    watts in force; gpu.power_default? of the board, as the tool says or as such boards have
    gpu.failed          what fails: "lost", "memory", "link", "bus", "device" or ""
    gpu.failures        how many signs of it; gpu.failed_code? the Xid; gpu.failed_remedy? reset, reboot, link, restart
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import devices
from infradoc_rules.values import number

_HEAT = ("hw_thermal", "sw_thermal", "hw_slowdown")
_BUSY = 0.5  # utilization; below it the clock is hardly what limits
_CLEARLY_BUSY = 0.8
_HEAT_CLOCK = 0.9  # SM clock over its maximum: boost clocks come and go by a few percent
_POWER_CLOCK = 0.7  # a full device sits at its power cap by design, a little below the maximum clock
_OWN_LIMIT = 0.85  # power limit over the board's own: below it somebody lowered it
_LOW_LIMIT = 0.7  # the same where no clock is shown beside it
_HOT = 86.0  # degrees C; most data centre GPUs slow down between 83 and 90
_VERY_HOT, _CRAWLING = 90.0, 1e9  # degrees C and hertz: no device of the last ten years works at that clock by itself
_HOT_DRAW = 0.75  # of the power limit; a device that works hard and draws no more is held down
_LOWEST = 5  # performance states from here on are those of an idle device
_MOSTLY = 0.5  # of the snapshots


@dataclass(frozen=True, slots=True)
class _Seen:
    """One device over all its snapshots."""

    gpu: int
    states: Sequence[Event]
    reasons: Mapping[str, int]
    others: float | None = None  # the highest usual clock of the devices beside it

    def values(self, name: str) -> list[float]:
        found = (number(event.fields.get(name)) for event in self.states)
        return [value for value in found if value is not None]

    def middle(self, name: str) -> float | None:
        values = sorted(self.values(name))
        return values[len(values) // 2] if values else None

    def held(self, reasons: Iterable[str]) -> bool:
        """Whether one of the reasons was active in most snapshots."""
        return any(self.reasons.get(reason, 0) >= _MOSTLY * max(len(self.states), 1) for reason in reasons)

    @property
    def usual_clock(self) -> float | None:
        """The median SM clock while busy, in hertz."""
        clocks = sorted(_value(event, "clock_hertz", 0.0) for event in self._busy())
        return clocks[len(clocks) // 2] if clocks else None

    @property
    def beside_others(self) -> float | None:
        """Its usual clock over that of the fastest device beside it."""
        own = self.usual_clock
        return own / self.others if own is not None and self.others else None

    def _busy(self) -> list[Event]:
        return [e for e in self.states if _value(e, "utilization", 1.0) >= _BUSY and "clock_hertz" in e.fields]

    @property
    def clock(self) -> float | None:
        """SM clock over its maximum while busy; the highest clock of a series stands for a maximum not shown."""
        most = max(self.values("clock_max_hertz"), default=None)
        busy = self._busy()
        clocks = sorted(_value(event, "clock_hertz", 0.0) for event in busy)
        if not clocks:
            return None
        if most:
            return clocks[len(clocks) // 2] / most
        late = sorted(_value(event, "clock_hertz", 0.0) for event in busy[len(busy) // 2 :])
        return late[len(late) // 2] / clocks[-1] if len(busy) >= 4 else None


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """All facts on devices."""
    if not events:
        return
    yield from _throttled(list(_devices(events)), _works(events))
    yield from _failed(events)


def _value(event: Event, name: str, other: float) -> float:
    value = event.fields.get(name)
    return float(value) if isinstance(value, int | float) else other


def _devices(events: Sequence[Event]) -> Iterator[_Seen]:
    states: dict[int, list[Event]] = defaultdict(list)
    reasons: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        gpu = event.fields.get("gpu")
        if event.name == "gpu_state" and isinstance(gpu, int):
            states[gpu].append(event)
        elif event.name == "gpu_clocks_reason" and isinstance(gpu, int):
            reasons[gpu][str(event.fields.get("reason"))] += 1
    seen = [_Seen(gpu, states[gpu], reasons[gpu]) for gpu in sorted(states.keys() | reasons.keys())]
    for device in seen:
        clocks = [clock for other in seen if other is not device and (clock := other.usual_clock) is not None]
        yield replace(device, others=max(clocks, default=None))


def _works(events: Sequence[Event]) -> bool:
    """Whether the log shows work at all, for snapshots that tell no utilization."""
    stats = [event for event in events if event.name in ("stats_line", "step_line")]
    return any(
        _value(e, "running", 0) or _value(e, "generation_rate", 0) or _value(e, "decode_requests", 0) for e in stats
    )


def _throttled(seen: Sequence[_Seen], works: bool) -> Iterator[Fact]:
    found = [(why, device) for device in seen if (why := _why(device, works))]
    rank = {"heat": 0, "brake": 1, "power": 2, "clocks": 3}
    why, worst = min(found, key=lambda pair: rank[pair[0]], default=("", None))
    place = worst.states[0].source if worst and worst.states else None
    if not any(device.states or device.reasons for device in seen):
        return
    yield Fact("gpu.throttled", why, "derived", place)
    if worst is None:
        return
    yield Fact(
        "gpu.throttled_gpu", ", ".join(str(device.gpu) for cause, device in found if cause == why), "derived", place
    )
    numbers = {
        "gpu.clock_share": worst.clock,
        "gpu.hot": max(worst.values("temperature"), default=None),
        "gpu.power_limit": worst.middle("power_limit_watts"),
        "gpu.power_default": _default(worst),
    }
    yield from (Fact(name, value, "derived", place) for name, value in numbers.items() if value is not None)


def _default(device: _Seen) -> float | None:
    """The board's own power limit: as the tool says, else as boards of that name have."""
    said = device.middle("power_default_watts")
    name = next((str(e.fields["name"]) for e in device.states if "name" in e.fields), "")
    return said if said is not None else devices.board_watts(name)


def _why(device: _Seen, works: bool) -> str:
    used, clock = device.middle("utilization"), device.clock
    if used is None and not device.values("clock_hertz") and not device.reasons:
        return ""
    if used is not None and max(device.values("utilization")) < _BUSY:
        return ""
    # A device that slows down for heat or a brake works; for the other reasons somebody has to say so.
    if used is None and not works and not device.held((*_HEAT, "power_brake")):
        return ""
    slow = clock is None or clock < _HEAT_CLOCK
    if device.held(("power_brake",)) and slow:
        return "brake"
    if (device.held(_HEAT) and slow) or _too_hot(device):
        return "heat"
    if _capped(device, clock):
        return "power"
    return "clocks" if _fixed(device, clock, used) else ""


def _too_hot(device: _Seen) -> bool:
    """Hot, busy, and yet far from its power limit; or its clock fell as it grew hot."""
    hot = max(device.values("temperature"), default=0.0)
    limit = min(_HOT, device.middle("slowdown_temperature") or _HOT)
    draw, cap = device.middle("power_watts"), device.middle("power_limit_watts")
    used = device.middle("utilization") or 0.0
    if hot < limit or used < _CLEARLY_BUSY:
        return False
    if hot >= _VERY_HOT and (own := device.usual_clock) is not None and own < _CRAWLING:
        return True
    weak = draw is not None and cap is not None and draw < _HOT_DRAW * cap
    # A clock is compared with its own maximum; with its neighbours' only beside such heat: they may be other models.
    clock = device.clock if device.values("clock_max_hertz") else device.beside_others or device.clock
    return weak or (clock is not None and clock < _HEAT_CLOCK)


def _capped(device: _Seen, clock: float | None) -> bool:
    """At a limit that was lowered, or (where the board's own is not known) with the clock far down."""
    limit, default, draw = device.middle("power_limit_watts"), _default(device), device.middle("power_watts")
    at_limit = device.held(("power_cap",)) or (draw is not None and limit is not None and draw >= 0.93 * limit)
    if not at_limit:
        return False
    if limit is not None and default is not None:
        return limit < (_OWN_LIMIT if clock is not None and clock < _HEAT_CLOCK else _LOW_LIMIT) * default
    return clock is not None and clock < _POWER_CLOCK and device.held(("power_cap",))


def _fixed(device: _Seen, clock: float | None, used: float | None) -> bool:
    """Clocks far below the maximum on a busy device for no reason of heat or power: set so, or stuck in a low state."""
    if used is None or used < _CLEARLY_BUSY:
        return False
    if clock is not None:
        return clock < _POWER_CLOCK and (device.held(("clocks_setting",)) or not device.held(("power_cap",)))
    states = device.values("pstate")
    return bool(states) and sorted(states)[len(states) // 2] >= _LOWEST


def _failed(events: Sequence[Event]) -> Iterator[Fact]:
    signs = [sign for event in events if (sign := devices.failure_of(event)) is not None]
    best = min(signs, key=lambda sign: sign.rank, default=None)
    yield Fact("gpu.failed", best.what if best else "", "derived", best.event.source if best else None)
    yield Fact("gpu.failures", sum(sign.event.repeat for sign in signs), "derived", best.event.source if best else None)
    if best is not None and best.code is not None:
        yield Fact("gpu.failed_code", best.code, "derived", best.event.source)
    if best is not None:
        yield Fact("gpu.failed_remedy", best.remedy, "derived", best.event.source)
