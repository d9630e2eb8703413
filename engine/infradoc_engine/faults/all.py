"""The registry of faults."""

from __future__ import annotations

from infradoc_engine.faults.base import Fault
from infradoc_engine.faults.busy_front_end import BusyFrontEnd
from infradoc_engine.faults.cpu_burn import CpuBurn
from infradoc_engine.faults.drop_prefix_hits import DropPrefixHits
from infradoc_engine.faults.host_memory_leak import HostMemoryLeak
from infradoc_engine.faults.leak_blocks import LeakBlocks
from infradoc_engine.faults.memory_hog import MemoryHog
from infradoc_engine.faults.slow_step import SlowStep
from infradoc_engine.faults.stall import Stall

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        LeakBlocks,
        MemoryHog,
        HostMemoryLeak,
        Stall,
        SlowStep,
        CpuBurn,
        DropPrefixHits,
        BusyFrontEnd,
    )
}
