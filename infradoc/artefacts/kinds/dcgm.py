"""Pages of NVIDIA's DCGM exporter: one `gpu_state` a device and scrape, Xids and reasons for low clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infradoc.artefacts.kinds.nvidia_state import reason_event, reasons_in, state_event
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

MOST_SCRAPES = 500
_SAMPLE = lazy(r"^(DCGM_FI_\w+)\{([^{}]*)\} +([-+.\deE]+)")
_LABEL = lazy(r'(\w+)="([^"]*)"')
# field -> (our field of gpu_state, factor); memory is in MiB, clocks in MHz
_FIELDS: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization", 0.01),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_watts", 1),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": ("power_default_watts", 1),
    "DCGM_FI_DEV_SM_CLOCK": ("clock_hertz", 1e6),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ("clock_max_hertz", 1e6),
    "DCGM_FI_DEV_FB_USED": ("used_bytes", 1 << 20),
    "DCGM_FI_DEV_FB_TOTAL": ("total_bytes", 1 << 20),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected", 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("remap_pending", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", 1),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("pcie_width", 1),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ("pcie_width_max", 1),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("pcie_generation", 1),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": ("pcie_generation_max", 1),
}
_PARTS = ("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")  # beside what is used, where no total is exported
_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_WHOLE = frozenset({"ecc_uncorrected", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"})


def events(scrapes: Sequence[tuple[float, Sequence[str]]], place: str) -> list[Event]:
    """What the pages say of each device. A MIG slice counts as its device's memory and nothing else."""
    out: list[Event] = []
    told: set[tuple[int, int]] = set()
    for sample, (_, page) in enumerate(scrapes[:MOST_SCRAPES]):
        for gpu, (name, values) in _devices(page).items():
            out += _of_device(gpu, name, values, sample, place)
            code = int(values.get("DCGM_FI_DEV_XID_ERRORS", 0))  # the last one, shown for ever after
            if code > 0 and (gpu, code) not in told:
                told.add((gpu, code))
                text = f"DCGM gpu={gpu} {name} last Xid {code}"
                out.append(Event("xid", 0, {"code": code, "gpu": gpu}, None, None, place, text))
    return out


def _devices(page: Sequence[str]) -> dict[int, tuple[str, dict[str, float]]]:
    found: dict[int, tuple[str, dict[str, float]]] = {}
    for line in page:
        row = _SAMPLE.match(line) if line.startswith("DCGM_FI_") else None
        labels = dict(_LABEL.findall(row[2])) if row else {}
        if row is None or not labels.get("gpu", "").isdigit() or labels.get("GPU_I_ID"):
            continue
        try:
            value = float(row[3])
        except ValueError:
            continue
        _, values = found.setdefault(int(labels["gpu"]), (labels.get("modelName", ""), {}))
        values[row[1]] = value
    return found


def _of_device(gpu: int, name: str, values: Mapping[str, float], sample: int, place: str) -> Iterator[Event]:
    fields: dict[str, Value | None] = {"gpu": gpu, "sample": sample, "name": name or None}
    for field, (ours, factor) in _FIELDS.items():
        if field in values:
            number = values[field] * factor
            fields[ours] = number > 0 if ours.startswith("remap") else int(number) if ours in _WHOLE else number
    if "total_bytes" not in fields and "used_bytes" in fields and _PARTS[0] in values:
        whole = sum(values.get(part, 0) for part in ("DCGM_FI_DEV_FB_USED", *_PARTS))
        fields["total_bytes"] = whole * (1 << 20)
    text = f"DCGM gpu={gpu} {name}".strip()
    if len(fields) > 3:
        yield state_event(fields, place, text)
    for field in _REASONS:
        for reason in reasons_in(hex(int(values.get(field, 0)))):
            yield reason_event(gpu, reason, place, text)
