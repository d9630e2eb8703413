"""AMD GPUs through `amdsmi`: a child imports a stand-in for the library from its PYTHONPATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infradoc.sources.amdsmi import AmdSmiSource

FAKE = Path(__file__).parent / "fake_amdsmi"
_PROBE = """
import json, sys
from pathlib import Path
from infradoc.sources.amdsmi import AmdSmiSource
from infradoc.sources.gpu_processes import Family
source = AmdSmiSource(lambda: Family(frozenset({int(sys.argv[2])})), (), Path(sys.argv[1]))
if not source.is_supported():
    print(json.dumps({"why": source.why_not()}))
    raise SystemExit
source._root = Path("/")
looks = [source.read(100.0 + look) for look in range(3)]
source.close(); source.close()
import amdsmi
def shown(one):
    return one.name + "".join(f" {value}" for name, value in one.labels if name not in ("uuid", "pid"))
samples = {shown(one): one.value for one in looks[-1].samples}
print(json.dumps({"samples": samples, "error": looks[-1].error, "facts": {f.name: f.value for f in looks[-1].facts},
                  "calls": amdsmi.calls, "why": source.why_not()}))
"""


@pytest.fixture
def amd_host(tmp_path: Path) -> Path:
    """The root of a host whose kernel shows one AMD GPU."""
    place = tmp_path / "sys/class/drm/card0/device"
    place.mkdir(parents=True)
    (place / "vendor").write_text("0x1002\n")
    return tmp_path


def probe(root: Path, manner: str = "new", library: bool = True) -> dict[str, Any]:
    environment = {**os.environ, "FAKE_AMDSMI": manner, "FAKE_AMDSMI_PID": str(os.getpid())}
    if library:
        environment["PYTHONPATH"] = str(FAKE)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROBE, str(root), str(os.getpid())],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("manner", ["new", "old"])
def test_the_same_signals_as_for_nvidia(amd_host: Path, manner: str) -> None:
    seen = probe(amd_host, manner)
    samples = seen["samples"]
    assert seen["error"] is None and seen["why"] is None
    assert samples["gpu_memory_used_bytes 1"] == 100000 * 2**20
    assert samples["gpu_memory_free_bytes 0"] == 96592 * 2**20
    assert samples["gpu_utilization_ratio 0"] == 0.97
    assert samples["gpu_power_watts 0"] == 640 and samples["gpu_power_limit_watts 0"] == 750
    assert samples["gpu_energy_joules_total 0"] == pytest.approx(15.3)
    assert samples["gpu_temperature_celsius 0 die"] == 92 and samples["gpu_temperature_celsius 0 memory"] == 70
    assert samples["gpu_clock_hertz sm 0"] == 1.2e9 and samples["gpu_clock_max_hertz sm 0"] == 2.1e9
    assert samples["gpu_ecc_errors_total 0 corrected"] == 3 and samples["gpu_pcie_replays_total 0"] == 4
    assert samples["gpu_pcie_link_lanes 0 max"] == 16
    assert samples["gpu_process_memory_bytes 0 server"] == 2**30
    assert seen["facts"]["gpu.name"] == "AMD Instinct MI300X" and seen["facts"]["gpu.driver"] == "6.12.12"
    if manner == "new":
        assert samples["gpu_throttle_active 0 sw_thermal"] == 1 and samples["gpu_throttle_active 0 power_cap"] == 0
    else:  # not supported: no reasons at all, and asked for once a device
        assert not [name for name in samples if name.startswith("gpu_throttle_active")]
        assert seen["calls"]["amdsmi_get_violation_status"] == 2
    assert seen["calls"]["amdsmi_get_gpu_activity"] == 6 and seen["calls"]["shut_down"] == 1


def test_devices_that_do_not_answer_are_a_failed_look(amd_host: Path) -> None:
    assert "No AMD GPU answered" in probe(amd_host, "dead")["error"]


@pytest.mark.parametrize(
    ("manner", "library", "part"),
    [
        ("new", False, "amdsmi is not installed"),
        ("broken", True, "AMDSMI_STATUS_DRIVER_NOT_LOADED"),
        ("none", True, "amdsmi sees no GPU"),
    ],
)
def test_why_a_host_with_an_amd_gpu_shows_nothing(amd_host: Path, manner: str, library: bool, part: str) -> None:
    assert part in probe(amd_host, manner, library)["why"]


def test_a_host_without_one_is_silent(tmp_path: Path) -> None:
    source = AmdSmiSource(root=tmp_path)
    assert not source.is_supported() and source.why_not() is None
    source.close()
