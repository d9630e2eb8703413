"""What the forms of `nvidia-smi` have in common: readings with units, one `gpu_state` a device and snapshot, facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from infradoc.artefacts.model import Segment
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_NUMBER = lazy(r"^\[?(?P<n>-?\d+(?:\.\d+)?) ?(?P<unit>MiB|GiB|KiB|MB|GB|%|W|mW|C|MHz|us)?\]?$")
_SCALE = {"MiB": 1 << 20, "GiB": 1 << 30, "KiB": 1 << 10, "MB": 10**6, "GB": 10**9, "MHz": 1e6, "%": 0.01, "mW": 1e-3}
_SCALE["us"] = 1e-6
# Bits of the mask that `clocks_event_reasons.active` prints; the names are those of the live source.
REASON_BITS = {
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
_REASON_WORDS = (
    ("power brake", "power_brake"),
    ("hw thermal", "hw_thermal"),
    ("sw thermal", "sw_thermal"),
    ("sw power", "power_cap"),
    ("hw slowdown", "hw_slowdown"),
    ("sync boost", "sync_boost"),
    ("applications clocks", "clocks_setting"),
)


def reading(text: str, unit: str = "") -> float | None:
    """ "73310MiB" in bytes, "98 %" as a ratio, "1410 MHz" in hertz, "350.1 W"; None for "N/A", "[Not Supported]", ...

    unit: of a bare number.
    """
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    return float(found["n"]) * _SCALE.get(found["unit"] or unit, 1)


def reason_of(words: str) -> str | None:
    """Our name of a clocks reason: "HW Thermal Slowdown", "sw_power_cap"; None of idle and unknown ones."""
    plain = words.strip().lower().replace("_", " ")
    return next((name for start, name in _REASON_WORDS if start in plain), None)


def reasons_in(mask: str) -> list[str]:
    """The reasons of a mask as nvidia-smi prints it: "0x0000000000000060"."""
    try:
        bits = int(mask.strip(), 16)
    except ValueError:
        return []
    return [name for bit, name in REASON_BITS.items() if bits & bit]


def state_event(fields: Mapping[str, Value | None], place: str, text: str, time: float | None = None) -> Event:
    """A `gpu_state` event of what is known."""
    known = {name: _plain(name, value) for name, value in fields.items() if value is not None}
    return Event("gpu_state", 0, known, time, None, place, text[:400])


def _plain(name: str, value: Value) -> Value:
    """Bytes and clocks as whole numbers, ratios without what a product of floats adds."""
    if not isinstance(value, float):
        return value
    return round(value) if name.endswith(("_bytes", "_hertz")) else round(value, 4)


def reason_event(gpu: int, reason: str, place: str, text: str, time: float | None = None) -> Event:
    """A `gpu_clocks_reason` event."""
    return Event("gpu_clocks_reason", 0, {"gpu": gpu, "reason": reason}, time, None, place, text[:400])


def process_event(
    gpu: int, pid: str, name: str, size: float | None, place: str, text: str, time: float | None = None
) -> Event:
    """A `gpu_process` event; the size is left out where the driver does not tell it."""
    fields: dict[str, Value] = {"gpu": gpu, "name": name}
    if pid.isdigit():
        fields["pid"] = int(pid)
    if size is not None:
        fields["bytes"] = round(size)
    return Event("gpu_process", 0, fields, time, None, place, text[:400])


def facts_of(events: Sequence[Event], segment: Segment) -> list[Fact]:
    """gpu.name, gpu.count, gpu.total_bytes, gpu.memory_bytes (of one device), gpu.used_bytes, gpu.utilization (both of
    the busiest device in the last snapshot), gpu.utilization_median (of several snapshots), gpu.power_share;
    pcie.width, pcie.width_max, pcie.narrow of the device with the fewest of its lanes."""
    states = [event for event in events if event.name == "gpu_state"]
    if not states:
        return []
    last: dict[Value, Event] = {}
    for event in states:
        last[event.fields["gpu"]] = event
    facts: dict[str, Value | None] = {"gpu.count": len(last)}
    facts["gpu.name"] = next((event.fields["name"] for event in last.values() if "name" in event.fields), None)
    total = max(_numbers(last.values(), "total_bytes"), default=None)
    facts["gpu.total_bytes"] = facts["gpu.memory_bytes"] = None if total is None else round(total)
    used = max(_numbers(last.values(), "used_bytes"), default=None)
    facts["gpu.used_bytes"] = None if used is None else round(used)
    facts["gpu.utilization"] = max(_numbers(last.values(), "utilization"), default=None)
    facts["gpu.power_share"] = max(
        (event.fields["power_watts"] / event.fields["power_limit_watts"] for event in last.values() if _capped(event)),  # type: ignore[operator]
        default=None,
    )
    if len(states) > len(last):
        busiest = [list(_numbers((e for e in states if e.fields["gpu"] == gpu), "utilization")) for gpu in last]
        facts["gpu.utilization_median"] = max((median(values) for values in busiest if values), default=None)
    facts |= _link(last.values())
    place = segment.place(0)
    return [Fact(name, value, "file", place) for name, value in facts.items() if value is not None]


def _link(states: Iterable[Event]) -> dict[str, Value | None]:
    """The lanes of the slot. Its generation is no sign: it falls while the device is idle, by design."""
    pairs = [
        (now, most)
        for event in states
        if (now := event.fields.get("pcie_width")) and (most := event.fields.get("pcie_width_max"))
    ]
    if not pairs:
        return {}
    now, most = min(pairs, key=lambda pair: pair[0] / pair[1])  # type: ignore[operator]
    return {"pcie.width": now, "pcie.width_max": most, "pcie.narrow": now < most}  # type: ignore[operator]


def _capped(event: Event) -> bool:
    return bool(event.fields.get("power_limit_watts")) and "power_watts" in event.fields


def _numbers(events: Iterable[Event], field: str) -> Iterator[float]:
    for event in events:
        value = event.fields.get(field)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)
