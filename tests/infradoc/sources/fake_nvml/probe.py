"""Looks at the NVML source a few times and prints what it saw, a JSON line a look. A child of the tests.

probe.py LOOKS GAP STEP [FAMILY] [INDICES] [SILENT]: GAP is the real time between looks in seconds, STEP that of the
readings; FAMILY and INDICES are comma-separated numbers. With SILENT the source is asked apart, as a watch does, and
an answer that is later than so many seconds is called missing.
"""

import json
import sys
import time

from infradoc.sources.gpu_apart import ApartSource, Patience
from infradoc.sources.gpu_processes import Family
from infradoc.sources.nvml import NvmlSource


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


looks, gap, step = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
family, indices, silent = [*sys.argv[4:], "", "", ""][:3]
assert "pynvml" not in sys.modules, "the library must be loaded at the first look, not before"
nvml = NvmlSource(lambda: Family(frozenset(numbers(family))), numbers(indices), asked=True)
patience = Patience(open=3.0, look=0.3, silent=float(silent)) if silent else Patience()
source = ApartSource(nvml, patience) if silent else nvml
if not source.is_supported():
    print(json.dumps({"why": source.why_not()}))
    raise SystemExit
start = time.time()
for look in range(looks):
    before = nvml.calls
    reading = source.read(start + look * step)
    shown = {
        "row": source.last_row,
        "samples": [[one.name, dict(one.labels), one.value, one.time - start] for one in reading.samples],
        "events": [[event.name, dict(event.fields), event.text] for event in reading.events],
        "facts": {fact.name: fact.value for fact in reading.facts},
        "error": reading.error,
        "calls": nvml.calls - before,
        "why": source.why_not(),
    }
    print(json.dumps(shown), flush=True)
    time.sleep(gap)
source.close()
source.close()
assert not source.is_supported()
