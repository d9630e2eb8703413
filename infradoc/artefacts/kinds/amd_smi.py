"""AMD's tools: `rocm-smi` (table, rows of one reading, JSON) and `amd-smi` (table, monitor, metric, JSON)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infradoc.artefacts.kinds.nvidia_state import facts_of, state_event
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans, runs
from infradoc_rules.model import Event, Value

_SIGNS = ("ROCm", " AMD ", "GPU[", "AMD-SMI", "VRAM", "GFX_ACTIVITY", "gfx_activity", "SCLK", "MEM_USAGE")
# A junction is designed for 100 degrees; what rules call hot is meant for the sensors that other makers show.
_JUNCTION_LIMIT = 100.0


class AmdSmiKind:
    """Snapshots of AMD devices."""

    name = "amd_smi"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of rows with the bars and heads around them, and JSON of either tool."""
        if not any(sign in line for line in lines for sign in _SIGNS):
            return []
        from infradoc.artefacts.kinds.amd_forms import json_devices, mine, telling  # not above: few texts have any

        found = [span for span in runs(lines, mine, gap=2) if any(telling(line) for line in lines[span[0] : span[1]])]
        return sorted(found + json_spans(lines, lambda value: list(json_devices(value))))

    def read(self, segment: Segment) -> Artefact:
        """`gpu_state` events; facts gpu.*."""
        from infradoc.artefacts.kinds.amd_forms import devices, numbered

        events = [
            _event(fields, segment.place(index), segment.lines[index].strip(), sample)
            for sample, (index, fields) in numbered(devices(segment.lines))
        ]
        return Artefact(events, facts_of(events, segment))


def _event(fields: Mapping[str, Value | None], place: str, text: str, sample: int) -> Event:
    if isinstance(heat := fields.get("temperature"), float) and heat < _JUNCTION_LIMIT:
        fields = {name: value for name, value in fields.items() if name != "temperature"}
    return state_event({**fields, "gpu": fields.get("gpu") or 0, "sample": sample}, place, text)
