"""Sets the pace of a load to the machine, before the fault and its fix: the same load then runs through both."""

from __future__ import annotations

import asyncio
import statistics

from infradoc.demo.children import ChildError
from infradoc.demo.faults import Fault, Paced
from infradoc.load.run import LoadResult, run_load
from infradoc.load.spec import ClassSpec, LoadSpec, parse_class

WARM = 2  # the first requests find cold caches
MEASURED = 5


def classes(fault: Fault, url: str, seed: int) -> tuple[str, ...]:
    """The request classes of a fault on an idle engine at `url`. Raises ChildError when the engine does not answer."""
    if fault.paced is None:
        return fault.load
    seconds = one_alone(fault.paced, url, seed)
    pace = fault.paced.clients * seconds / fault.paced.share
    return (*fault.load, f"{fault.paced.spec},pace={pace:.2f}")


def one_alone(paced: Paced, url: str, seed: int) -> float:
    """Seconds that one request takes when nothing else runs: the median of a few."""
    given = parse_class(paced.spec)
    single = ClassSpec(given.name, given.kind, closed=1, bytes=given.bytes, count=WARM + MEASURED)
    result: LoadResult = asyncio.run(run_load(url, LoadSpec((single,), seed=seed, duration=None)))
    times = [record.e2e for record in result.records[WARM:] if record.ok and record.e2e is not None]
    if len(times) < MEASURED:
        raise ChildError("The engine did not answer the requests that set the pace of the load.", "See its log.")
    return statistics.median(times)
