"""Devices in other tools' words: rocm-smi, amd-smi, the DCGM exporter, csv without a header, PCIe lanes."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.amd_smi import AmdSmiKind
from infradoc.artefacts.kinds.lspci import LspciKind
from infradoc.artefacts.kinds.metrics import MetricsKind
from infradoc.artefacts.kinds.nvidia_smi import NvidiaSmiKind

GIB = 1 << 30
ROCM = """\
============================ ROCm System Management Interface ============================
====================================== Concise Info ======================================
Device  Node  IDs              Temp        Power     Partitions       SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
==========================================================================================
0       2     0x74a1,   28851  42.0°C      131.0W    NPS1, SPX, 0     145Mhz   900Mhz   0%   auto  750.0W  0%     0%
1       3     0x74a1,   51499  95.0°C      700.0W    NPS1, SPX, 0     1900Mhz  900Mhz   0%   auto  750.0W  91%    100%
================================== End of ROCm SMI Log ===================================
"""
TABLE = """\
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
|=====================================+========================================|
| 0000:05:00.0    AMD Instinct MI300X | 0 %      38 °C   0           134/750 W |
|   0       0       7        SPX/NPS1 | 97 %       N/A        102400/196608 MB |
"""
METRIC = """\
GPU: 0
    USAGE:
        GFX_ACTIVITY: 97 %
    CLOCK:
        GFX_0:
            CLK: 1200 MHz
            MAX_CLK: 2100 MHz
    MEM_USAGE:
        TOTAL_VRAM: 196608 MB
        USED_VRAM: 102400 MB
"""
MONITOR = (
    "GPU  POWER  GPU_TEMP  GFX_UTIL  VRAM_USED  VRAM_TOTAL\n  0  132 W     38 °C     97 %  102400 MB   196608 MB\n"
)
READINGS = (
    "GPU[0]\t: GPU use (%): 97\nGPU[0]\t: VRAM Total Memory (B): 206158430208\n"
    "GPU[0]\t: VRAM Total Used Memory (B): 107374182400\n"
)
JSON_OLD = (
    '{"card0": {"GPU use (%)": "97", "VRAM Total Memory (B)": "206158430208",'
    ' "VRAM Total Used Memory (B)": "107374182400"}}\n'
)
JSON_NEW = (
    '[{"gpu": 0, "usage": {"gfx_activity": {"value": 97, "unit": "%"}},'
    ' "mem_usage": {"total_vram": {"value": 196608, "unit": "MB"}, "used_vram": {"value": 102400, "unit": "MB"}}}]\n'
)
DCGM = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 98
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 1980
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 70000
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 11000
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 79
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 64
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 0
"""


@pytest.fixture(scope="module")
def amd(read_kind):
    return partial(read_kind, AmdSmiKind())


@pytest.fixture(scope="module")
def nvidia(read_kind):
    return partial(read_kind, NvidiaSmiKind())


def test_rocm_smi_table(amd):
    events, facts = amd(ROCM)
    assert [event.fields["gpu"] for event in events] == [0, 1] and facts["gpu.count"] == 2
    assert events[1].fields["utilization"] == 1.0 and events[1].fields["clock_hertz"] == 1900e6
    # 95 degrees at the junction are no sign of heat.
    assert events[1].fields["power_limit_watts"] == 750.0 and "temperature" not in events[1].fields


@pytest.mark.parametrize("text", [TABLE, METRIC, MONITOR, READINGS, JSON_OLD, JSON_NEW])
def test_every_form_of_amds_tools_says_the_same(amd, text):
    ((event,), facts) = amd(text)
    assert event.fields["utilization"] == 0.97 and facts["gpu.used_bytes"] == 100 * GIB
    assert facts["gpu.memory_bytes"] == 192 * GIB


@given(st.lists(st.sampled_from([*ROCM.splitlines(), *METRIC.splitlines(), *TABLE.splitlines(), "", "{", "GPU[0]"])))
def test_torn_tables_do_no_harm(lines):
    kind = AmdSmiKind()
    assert all(0 <= start < end <= len(lines) for start, end in kind.spans(lines))


def test_dcgm_exporter(read_kind):
    events, facts = read_kind(MetricsKind(), DCGM)
    by_name = {event.name: event for event in events}
    state, reason, xid = by_name["gpu_state"], by_name["gpu_clocks_reason"], by_name["xid"]
    assert state.fields["utilization"] == 0.98 and state.fields["total_bytes"] == 81000 << 20
    assert state.fields["remap_failed"] is False and facts["gpu.name"] == "NVIDIA H100 80GB HBM3"
    assert reason.fields == {"gpu": 0, "reason": "hw_thermal"} and xid.fields == {"code": 79, "gpu": 0}


def test_csv_whose_columns_a_command_names(nvidia):
    _, facts = nvidia(
        "nvidia-smi --query-gpu=index,memory.total,memory.free,memory.used --format=csv,noheader\n"
        "0, 81920 MiB, 500 MiB, 81420 MiB\n"
    )
    assert facts["gpu.used_bytes"] == 81420 << 20 and facts["gpu.count"] == 1


def test_csv_without_any_name_gives_only_what_is_sure(nvidia):
    events, facts = nvidia("0, NVIDIA L4, 20000 MiB, 23034 MiB, 98 %\n1, NVIDIA L4, 23034 MiB, 20000 MiB, 5 %\n")
    assert events[0].fields["used_bytes"] == 20000 << 20 and events[0].fields["utilization"] == 0.98
    assert "used_bytes" not in events[1].fields and facts["gpu.memory_bytes"] == 23034 << 20


def test_numbers_without_units_are_no_readings():
    assert NvidiaSmiKind().spans(["0, 20000, 23034, 98", "a MiB, b MiB"]) == []


def test_a_slot_with_fewer_lanes(nvidia):
    _, facts = nvidia(
        "index, pcie.link.gen.current, pcie.link.width.current, pcie.link.width.max\n0, 1, 16, 16\n1, 4, 4, 16\n"
    )
    assert facts["pcie.width"] == 4 and facts["pcie.width_max"] == 16 and facts["pcie.narrow"] is True
    _, facts = nvidia(
        "==============NVSMI LOG==============\nGPU 00000000:01:00.0\n    PCI\n        GPU Link Info\n"
        "            PCIe Generation\n                Max              : 4\n                Current          : 1\n"
        "            Link Width\n                Max              : 16x\n                Current          : 16x\n"
    )
    assert facts["pcie.narrow"] is False  # an idle link is slow by design


LSPCI = """\
17:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x%s
31:00.0 Ethernet controller: Mellanox Technologies MT2892 Family
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16
\tLnkSta:\tSpeed 8GT/s, Width x8 (downgraded)
"""


@pytest.mark.parametrize(("lanes", "narrow"), [("4 (downgraded)", True), ("16", False)])
def test_lspci_of_the_devices_that_compute(read_kind, lanes, narrow):
    _, facts = read_kind(LspciKind(), LSPCI % lanes)
    assert facts["pcie.narrow"] is narrow and facts["pcie.width"] == int(lanes.split()[0])


def test_lspci_of_several_devices_tells_of_the_one_with_the_fewest_lanes(read_kind):
    _, facts = read_kind(LspciKind(), LSPCI % "8 (downgraded)" + LSPCI % "16")
    assert (facts["pcie.width"], facts["pcie.width_max"]) == (8, 16)
