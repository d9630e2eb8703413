"""Looks at the NVML source a few times and prints what it saw, a JSON line a look. A child of the tests.

probe.py LOOKS GAP STEP [FAMILY] [INDICES]: GAP is the real time between looks in seconds, STEP that of the
readings; FAMILY and INDICES are comma-separated numbers.
"""

import json
import sys
import time

from infradoc.sources.gpu_processes import Family
from infradoc.sources.nvml import NvmlSource


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


looks, gap, step = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
family, indices = [*sys.argv[4:], "", ""][:2]
assert "pynvml" not in sys.modules, "the library must be loaded at the first look, not before"
source = NvmlSource(lambda: Family(frozenset(numbers(family))), numbers(indices), asked=True)
if not source.is_supported():
    print(json.dumps({"why": source.why_not()}))
    raise SystemExit
start = time.time()
for look in range(looks):
    before = source.calls
    reading = source.read(start + look * step)
    shown = {
        "row": source.last_row,
        "samples": [[one.name, dict(one.labels), one.value, one.time - start] for one in reading.samples],
        "events": [[event.name, dict(event.fields), event.text] for event in reading.events],
        "facts": {fact.name: fact.value for fact in reading.facts},
        "error": reading.error,
        "calls": source.calls - before,
        "why": source.why_not(),
    }
    print(json.dumps(shown), flush=True)
    time.sleep(gap)
source.close()
source.close()
assert not source.is_supported()
