"""The NVML source through the real pynvml: a child loads a library that plays a script, see `fake_nvml/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infradoc.sources.nvml_calls import Calls
from infradoc.sources.nvml_fields import ALL_LINKS, FieldReader, nvlink_errors

Looks = Callable[..., list[dict[str, Any]]]
PROBE = Path(__file__).parent / "fake_nvml" / "probe.py"
FAST_CALLS = 12  # most NVML calls of one look at one device, the event set's included
SLOW_CALLS = 7  # more of them every five seconds
GPU = "0 0 used 1000\n0 0 reasons 0\n"


def value(look: dict[str, Any], signal: str, /, **labels: str) -> float:
    (found,) = [v for n, own, v, _ in look["samples"] if n == signal and labels.items() <= own.items()]
    return float(found)


def names(look: dict[str, Any]) -> set[str]:
    return {name for name, *_ in look["samples"]}


def test_every_figure_in_base_units(nvml_looks: Looks) -> None:
    first, second = nvml_looks("base.txt", 2, 0.5, 1.0)
    assert value(first, "gpu_memory_used_bytes", gpu="0", uuid="GPU-fake-0") == 60e9
    assert value(first, "gpu_memory_free_bytes") == 19.5e9 and value(first, "gpu_memory_size_bytes") == 80e9
    assert value(first, "gpu_memory_reserved_bytes") == 0.5e9
    assert value(first, "gpu_utilization_ratio") == 0.93
    assert value(first, "gpu_clock_hertz", domain="sm") == 1935e6
    assert value(first, "gpu_clock_max_hertz", domain="memory") == 2619e6
    assert value(first, "gpu_power_watts") == 560 and value(first, "gpu_power_limit_watts") == 700
    assert value(first, "gpu_temperature_celsius", sensor="die") == 58
    assert value(first, "gpu_temperature_celsius", sensor="memory") == 71
    assert value(first, "gpu_energy_joules_total") == pytest.approx(90e6, rel=1e-4)
    assert value(first, "gpu_throttled_seconds_total", reason="power_cap") == pytest.approx(12, abs=1)
    assert value(first, "gpu_ecc_errors_total", kind="corrected") == 2
    assert value(first, "gpu_remapped_rows_total", kind="pending") == 0
    assert value(first, "gpu_pcie_link_generation", which="current") == 5
    assert value(first, "gpu_pcie_link_lanes", which="max") == 16
    assert value(first, "gpu_nvlink_bytes_total", direction="tx") >= 1e6 * 1024
    assert value(first, "gpu_nvlink_errors_total", kind="crc") == 3
    assert value(first, "gpu_info", name="Fake H100", driver="580.65.06", compute_capability="9.0", mig="disabled") == 1
    assert first["facts"]["gpu.power_limit_default_watts"] == 700
    # What is a difference of two looks comes with the second.
    assert "gpu_sm_active_ratio" not in names(first) and "gpu_pcie_bytes_per_second" not in names(first)
    assert value(second, "gpu_sm_active_ratio") == 0.81 and value(second, "gpu_dram_active_ratio") == 0.62
    assert value(second, "gpu_tensor_active_ratio") == 0.34
    assert value(second, "gpu_pcie_bytes_per_second", direction="tx") > 1e6


REASONS: dict[str, set[str]] = {
    "0x1": {"idle"},
    "0x2": {"clocks_setting"},
    "0x4": {"power_cap"},
    "0x68": {"hw_slowdown", "sw_thermal", "hw_thermal"},
    "0x190": {"sync_boost", "power_brake", "display"},
    "0x0": set(),
}


def test_reasons_by_bit_with_zeros_for_the_others(nvml_looks: Looks) -> None:
    lines = "".join(f"0 {gpu} reasons {bits}\n" for gpu, bits in enumerate(REASONS))
    (look,) = nvml_looks(f"0 * gpus {len(REASONS)}\n0 * used 1\n{lines}", 1, 0, 1)
    for gpu, reasons in enumerate(REASONS.values()):
        flags = {
            own["reason"]: v
            for n, own, v, _ in look["samples"]
            if n == "gpu_throttle_active" and own["gpu"] == str(gpu)
        }
        assert {name for name, flag in flags.items() if flag == 1} == reasons and len(flags) == 9


def test_older_spellings_of_the_driver_are_tried(nvml_looks: Looks) -> None:
    script = (
        f"{GPU}0 0 temp 50\n0 * ret:nvmlDeviceGetCurrentClocksEventReasons 13\n0 * ret:nvmlDeviceGetTemperatureV 13\n"
        "0 * ret:nvmlDeviceGetMemoryInfo_v2 13\n0 0 retired.single 4\n0 0 retired.double 1\n0 0 field:75 7000000000\n"
    )
    first, second = nvml_looks(script, 2, 0, 1)
    for look in (first, second):
        assert value(look, "gpu_throttle_active", reason="idle") == 0
        assert value(look, "gpu_temperature_celsius", sensor="die") == 50
        assert value(look, "gpu_memory_used_bytes") == 1000 and "gpu_memory_reserved_bytes" not in names(look)
        assert value(look, "gpu_remapped_rows_total", kind="corrected") == 4  # retired pages before Ampere
        assert value(look, "gpu_throttled_seconds_total", reason="sw_thermal") == 7


def test_what_is_not_supported_is_asked_for_once(
    nvml_looks: Looks, nvml_environment: Callable[..., Any], tmp_path: Path
) -> None:
    """A consumer card without ECC, fields, reasons or processes: nothing is invented, nothing is asked for again."""
    looks = nvml_looks("0 0 used 1000\n", 6, 0, 1)
    memory = {f"gpu_memory_{part}_bytes" for part in ("used", "free", "size", "reserved")}
    assert names(looks[0]) == {*memory, "gpu_info"}
    assert [look["error"] for look in looks] == [None] * 6
    counts = dict(line.rsplit(" ", 1) for line in (tmp_path / "script.counts").read_text().splitlines())
    assert int(counts["nvmlDeviceGetMemoryInfo_v2"]) == 6
    for name, most in (
        ("nvmlDeviceGetUtilizationRates", 1),
        ("nvmlDeviceGetPowerUsage", 1),
        ("nvmlDeviceGetTotalEccErrors", 2),
        ("nvmlDeviceGetClockInfo", 2),
        ("nvmlDeviceGetRemappedRows", 1),
        ("nvmlDeviceGetFieldValues", 2),
        ("nvmlDeviceGetCurrentClocksEventReasons", 1),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 1),
    ):
        assert int(counts[name]) <= most, name


def test_calls_of_a_look_are_bounded(nvml_looks: Looks) -> None:
    looks = nvml_looks("base.txt", 13, 0, 1)
    calls = [look["calls"] for look in looks[1:]]
    assert max(calls) <= FAST_CALLS + SLOW_CALLS
    assert sorted(calls)[len(calls) // 2] <= FAST_CALLS  # most looks are not slow ones
    assert sum(count > FAST_CALLS for count in calls) <= 3


def test_the_throughput_call_that_blocks_is_made_only_without_byte_counters(nvml_looks: Looks, tmp_path: Path) -> None:
    nvml_looks("base.txt", 3, 0, 1)
    assert "nvmlDeviceGetPcieThroughput" not in (tmp_path / "script.counts").read_text()
    looks = nvml_looks(f"{GPU}0 0 pcie.tx 1000\n0 0 pcie.rx 500\n", 21, 0, 1)
    assert value(looks[-1], "gpu_pcie_bytes_per_second", direction="tx") == 1_024_000
    counts = dict(line.rsplit(" ", 1) for line in (tmp_path / "script.counts").read_text().splitlines())
    assert int(counts["nvmlDeviceGetPcieThroughput"]) <= 6  # two every ten seconds


def test_an_unknown_error_is_tried_again(nvml_looks: Looks) -> None:
    script = f"{GPU}0 0 util 50\n0 * ret:nvmlDeviceGetUtilizationRates 999\n0.3 * ret:nvmlDeviceGetUtilizationRates 0\n"
    looks = nvml_looks(script, 4, 0.2, 1)
    assert "gpu_utilization_ratio" not in names(looks[0]) and value(looks[-1], "gpu_utilization_ratio") == 0.5


def test_figures_that_need_rights_are_named(nvml_looks: Looks) -> None:
    (look,) = nvml_looks(f"{GPU}0 * ret:nvmlDeviceGetComputeRunningProcesses_v3 4\n", 1, 0, 1)
    assert look["why"] == "These figures need more rights: nvmlDeviceGetComputeRunningProcesses."


def test_link_errors_are_summed_over_links_where_there_is_no_total(nvml_looks: Looks) -> None:
    links = "".join(f"0 0 field:162:{link} 2\n" for link in (1, 2))
    (look,) = nvml_looks(f"{GPU}0 0 field:91 4\n0 0 field:162 1\n{links}", 1, 0, 1)
    assert value(look, "gpu_nvlink_errors_total", kind="recovery") == 5
    (look,) = nvml_looks(f"{GPU}0 0 field:91 4\n0 0 field:38 2\n0 0 field:45 3\n0 0 field:52 1\n", 1, 0, 1)
    assert value(look, "gpu_nvlink_errors_total", kind="crc") == 5
    assert value(look, "gpu_nvlink_errors_total", kind="replay") == 1


def test_links_are_not_asked_one_by_one_where_the_driver_sums_them() -> None:
    """Fields 161 and 162 of four links; the driver sums 161 alone."""
    asked: list[list[tuple[int, int]]] = []

    def values(_handle: object, wanted: list[tuple[int, int]]) -> list[SimpleNamespace]:
        asked.append(list(wanted))
        codes = [3 if key == (162, ALL_LINKS) else 0 for key in wanted]
        return [SimpleNamespace(nvmlReturn=code, valueType=3, value=SimpleNamespace(ullVal=2)) for code in codes]

    library = SimpleNamespace(nvmlDeviceGetFieldValues=values, NVMLError=RuntimeError)
    links = [(field, link) for field in (161, 162) for link in range(4)]
    reader = FieldReader(Calls(library), [(83, 0), (161, ALL_LINKS), (162, ALL_LINKS), *links])
    for _ in range(2):
        assert nvlink_errors(reader.read(None)) == {"replay": 2, "recovery": 8}
    assert asked[1] == [(83, 0), (161, ALL_LINKS), (162, 0), (162, 1), (162, 2), (162, 3)]


def test_mig_instances_hold_the_memory(nvml_looks: Looks) -> None:
    script = "0 0 mig 2\n0 0 mig.0.used 3000\n0 0 mig.1.used 5000\n0 0 util 50\n0 0 reasons 0\n"
    (look,) = nvml_looks(script, 1, 0, 1)
    used = {own["uuid"]: v for n, own, v, _ in look["samples"] if n == "gpu_memory_used_bytes"}
    assert used == {"MIG-fake-0-0": 3000, "MIG-fake-0-1": 5000}
    assert "gpu_utilization_ratio" not in names(look)  # not supported on a device that is cut up
    assert value(look, "gpu_info", mig="enabled") == 1 and look["why"] is None


def test_xid_events_are_counted_from_zero(nvml_looks: Looks) -> None:
    script = f"0 * gpus 2\n{GPU}0 1 used 5\n0.3 0 xid 48\n0.3 0 xid 48\n0.3 1 xid 31\n"
    looks = nvml_looks(script, 4, 0.3, 1)
    assert "gpu_xid_errors_total" not in names(looks[0])
    events = [event for look in looks for event in look["events"]]
    assert [(name, fields["code"], fields["gpu"]) for name, fields, _ in events] == [
        ("xid", 48, 0), ("xid", 48, 0), ("xid", 31, 1),
    ]  # fmt: skip
    assert events[0][1]["detail"] == "device: reset" and events[0][1]["pci"] == "00000000:01:00.0"
    assert events[0][2] == "Xid 48 on GPU 0: double-bit ECC error"
    assert value(looks[-1], "gpu_xid_errors_total", xid="48", gpu="0", uuid="GPU-fake-0") == 2
    seen = next(look for look in looks if look["events"])
    counted = [(v, t) for n, own, v, t in seen["samples"] if n == "gpu_xid_errors_total" and own["xid"] == "48"]
    assert [v for v, _ in counted] == [0, 2] and counted[0][1] == pytest.approx(counted[1][1] - 1, abs=0.01)


def test_a_driver_without_xid_events_is_named(nvml_looks: Looks) -> None:
    look, again = nvml_looks(f"{GPU}0 * ret:nvmlDeviceRegisterEvents 3\n", 2, 0, 1)
    assert again["calls"] < look["calls"] and again["why"] == look["why"]
    assert look["why"].startswith("Xid errors of GPU 0: this driver does not report") and look["error"] is None


def test_a_lost_gpu_and_its_return(nvml_looks: Looks) -> None:
    script = f"0 * gpus 2\n{GPU}0 1 used 7\n0.15 1 lost 15\n0.7 1 lost 0\n"
    looks = nvml_looks(script, 7, 0.2, 3)
    gone = looks[2]
    assert gone["error"] is None and gone["why"].startswith("GPU 1 (00000000:02:00.0) is lost")
    assert value(gone, "gpu_memory_used_bytes") == 1000 and value(gone, "target_up", source="nvml") == 0
    events = [event for look in looks for event in look["events"]]
    assert [(name, fields["gpu"]) for name, fields, _ in events] == [("gpu_lost", 1)]
    back = looks[-1]
    assert back["why"] is None and value(back, "gpu_memory_used_bytes", gpu="1") == 7
    assert "target_up" not in names(back)


def test_the_last_gpu_lost_is_a_failed_look(nvml_looks: Looks) -> None:
    looks = nvml_looks(f"{GPU}0.15 0 lost 15\n", 3, 0.2, 1)
    assert looks[0]["error"] is None and "GPU 0 (00000000:01:00.0) is lost" in looks[2]["error"]
    assert looks[2]["samples"] == [] and looks[2]["why"] == looks[2]["error"]
    (look,) = nvml_looks("0 0 lost 16\n", 1, 0, 1)
    assert "needs a reset" in look["error"]


def test_a_gpu_without_rights_is_not_lost(nvml_looks: Looks) -> None:
    script = f"0 * gpus 2\n{GPU}0 1 used 3\n0 1 ret:nvmlDeviceGetHandleByIndex_v2 4\n"
    (look,) = nvml_looks(script, 1, 0, 1)
    assert look["events"] == [] and look["error"] is None and "target_up" not in names(look)
    assert look["why"].startswith("GPU 1 cannot be opened") and value(look, "gpu_memory_used_bytes") == 1000
    (look,) = nvml_looks("0 0 ret:nvmlDeviceGetHandleByIndex_v2 4\n", 1, 0, 1)
    assert "GPU 0 cannot be opened" in look["error"] and look["events"] == []


def test_whose_process(nvml_looks: Looks, other_process: int) -> None:
    me, nobody = os.getpid(), 2**22 - 3  # above what Linux gives out by default
    script = f"{GPU}0 0 procs {me}:100,{other_process}:200,{nobody}:300\n"
    (look,) = nvml_looks(script, 1, 0, 1, me)
    owners = {own["pid"]: (own["owner"], v) for n, own, v, _ in look["samples"] if n == "gpu_process_memory_bytes"}
    assert owners == {str(me): ("server", 100), str(other_process): ("other", 200), str(nobody): ("unknown", 300)}
    assert [one.get("name") for one in look["row"]["gpus"][0]["procs"]][1:] == ["sleep", None]


def test_nobody_is_another_s_on_a_device_that_is_cut_up(nvml_looks: Looks, other_process: int) -> None:
    """Its MIG instance is another one: it takes nothing from the server's."""
    me = os.getpid()
    script = f"0 0 mig 2\n0 0 mig.0.used 3000\n0 0 mig.1.used 5000\n0 0 procs {me}:100,{other_process}:200\n"
    (look,) = nvml_looks(script, 1, 0, 1, me)
    owners = {own["pid"]: own["owner"] for n, own, *_ in look["samples"] if n == "gpu_process_memory_bytes"}
    assert owners == {str(me): "server", str(other_process): "unknown"}


def test_only_the_gpus_of_the_configuration(nvml_looks: Looks) -> None:
    script = "0 * gpus 3\n0 * used 5\n"
    (look,) = nvml_looks(script, 1, 0, 1, "", "1,7")
    assert {own["gpu"] for n, own, *_ in look["samples"] if n == "gpu_info"} == {"1"}
    assert look["why"] == "GPU 7 of the configuration is not there."


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("0 * ret:nvmlInitWithFlags 18\n", "different versions"),
        ("0 * ret:nvmlInitWithFlags 9\n", "Driver Not Loaded"),
        ("0 * gpus 0\n", "NVML sees no GPU."),
    ],
)
def test_why_nothing_can_be_seen(nvml_looks: Looks, script: str, part: str) -> None:
    (look,) = nvml_looks(script, 1, 0, 1)
    assert part in look["why"]


def test_a_library_that_is_not_there_is_named_when_gpus_are_asked_for(nvml_environment: Callable[..., Any]) -> None:
    environment = nvml_environment(GPU)
    del environment["LD_LIBRARY_PATH"]
    command = [sys.executable, "-P", str(PROBE), "1", "0", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    if '"row"' in done.stdout:
        pytest.skip("this host has NVIDIA's library")
    assert "libnvidia-ml.so.1 cannot be loaded" in json.loads(done.stdout)["why"]
