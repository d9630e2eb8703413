"""Which sources a target gets."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from infradoc.config import TargetConfig
from infradoc.report.vitals import read_vitals
from infradoc.signals.store import Store
from infradoc.sources.all import bind_sources
from infradoc.sources.base import RowSource
from infradoc.sources.gpu_rows import GpuRows


@pytest.mark.parametrize(
    ("url", "more", "bound"),
    [
        ("http://127.0.0.1:8000", {}, True),
        ("http://127.0.0.1:8000", {"gpu": False}, False),
        ("http://127.0.0.1:8000", {"host": False}, False),
        ("http://gpu1:8000", {}, False),
        ("http://gpu1:8000", {"gpu": True}, True),
        ("http://gpu1:8000", {"host": True, "gpu": (0, 1)}, True),
    ],
)
def test_gpus_are_bound_with_the_host(url: str, more: dict[str, Any], bound: bool) -> None:
    sources = bind_sources(TargetConfig(url=url, **more))
    names = [source.name for source in sources]
    assert (names[-2:] == ["nvml", "amdsmi"]) is bound and names.count("nvml") == bound
    if "host" in names and bound:
        assert names.index("host") < names.index("nvml")  # it knows the server's processes by then
    kept = [source.row_file for source in sources if isinstance(source, RowSource)]
    assert kept == ["gpu.jsonl.gz"] * (2 if bound else 0)
    for source in sources:
        source.close()


def test_binding_loads_no_gpu_library() -> None:
    code = (
        "import sys; from infradoc.config import TargetConfig; from infradoc.sources.all import bind_sources;"
        "bind_sources(TargetConfig(url='http://127.0.0.1:1')); assert not {'pynvml', 'amdsmi'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)


def test_vitals_of_several_gpus_and_of_one_in_pieces() -> None:
    store, rows = Store(), GpuRows()
    whole = [{"gpu": index, "uuid": str(index), "util": index / 2, "mem": {"used": 5}} for index in (0, 1)]
    store.add(rows.reading({"t": 1.0, "gpus": whole}))
    vitals = read_vitals(store.frame(1.0), 1.0)
    assert vitals.values["gpu_utilization_ratio"] == 0.5 and vitals.values["gpu_memory_used_bytes"] == 10
    cut = {
        "gpu": 0,
        "mig": "enabled",
        "instances": [{"uuid": "MIG-a", "mem": {"used": 3}}, {"uuid": "MIG-b", "mem": {"used": 4}}],
    }
    store = Store()
    store.add(GpuRows().reading({"t": 1.0, "gpus": [cut]}))
    vitals = read_vitals(store.frame(1.0), 1.0)
    assert vitals.values["gpu_memory_used_bytes"] == 7 and vitals.values["gpu_utilization_ratio"] is None
    assert vitals.missing["gpu_utilization_ratio"] == "the target does not show it"
    assert "no GPU source" in read_vitals(Store().frame(1.0), 1.0).missing["gpu_utilization_ratio"]
