"""A stand-in for ROCm's `amdsmi`: calls and dictionaries of its versions 6 and 7. FAKE_AMDSMI picks the manner."""

import enum
import os

MANNER = os.environ.get("FAKE_AMDSMI", "new")


class AmdSmiLibraryException(Exception):
    pass


class AmdSmiTemperatureType(enum.Enum):
    EDGE = 0
    HOTSPOT = 1
    VRAM = 2


class AmdSmiTemperatureMetric(enum.Enum):
    CURRENT = 0


class AmdSmiClkType(enum.Enum):
    GFX = 1
    MEM = 4


calls: dict[str, int] = {}


def _called(name):
    calls[name] = calls.get(name, 0) + 1
    if MANNER == "dead" and name != "amdsmi_get_gpu_device_uuid":
        raise AmdSmiLibraryException("AMDSMI_STATUS_UNKNOWN_ERROR")


def amdsmi_init():
    if MANNER == "broken":
        raise AmdSmiLibraryException("Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED")


def amdsmi_shut_down():
    calls["shut_down"] = calls.get("shut_down", 0) + 1


def amdsmi_get_processor_handles():
    return [] if MANNER == "none" else ["h0", "h1"]


def amdsmi_get_gpu_device_uuid(handle):
    return f"uuid-{handle}"


def amdsmi_get_gpu_asic_info(handle):
    return {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}


def amdsmi_get_gpu_driver_info(handle):
    return {"driver_name": "amdgpu", "driver_version": "6.12.12"}


def amdsmi_get_gpu_vram_usage(handle):
    _called("amdsmi_get_gpu_vram_usage")
    return {"vram_total": 196592, "vram_used": 100000}


def amdsmi_get_gpu_activity(handle):
    _called("amdsmi_get_gpu_activity")
    return {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"}


def amdsmi_get_power_info(handle):
    _called("amdsmi_get_power_info")
    if MANNER == "old":
        return {"current_socket_power": "N/A", "average_socket_power": 640, "power_limit": 750}
    return {"socket_power": 640, "current_socket_power": 640, "average_socket_power": "N/A", "power_limit": 750000000}


def amdsmi_get_energy_count(handle):
    _called("amdsmi_get_energy_count")
    name = "power" if MANNER == "old" else "energy_accumulator"
    return {name: 1000000, "counter_resolution": 15.3, "timestamp": 1}


def amdsmi_get_temp_metric(handle, kind, metric):
    _called("amdsmi_get_temp_metric")
    if kind is AmdSmiTemperatureType.EDGE:
        raise AmdSmiLibraryException("Error code: 2 | AMDSMI_STATUS_NOT_SUPPORTED")
    return {AmdSmiTemperatureType.HOTSPOT: 92, AmdSmiTemperatureType.VRAM: 70}[kind]


def amdsmi_get_clock_info(handle, kind):
    _called("amdsmi_get_clock_info")
    now, top = (1200, 2100) if kind is AmdSmiClkType.GFX else (1300, 1300)
    return {("cur_clk" if MANNER == "old" else "clk"): now, "min_clk": 132, "max_clk": top}


def amdsmi_get_violation_status(handle):
    _called("amdsmi_get_violation_status")
    if MANNER == "old":
        raise AmdSmiLibraryException("Error code: 2 | AMDSMI_STATUS_NOT_SUPPORTED")
    return {"active_ppt_pwr": False, "active_socket_thrm": True, "active_vr_thrm": "N/A", "active_prochot_thrm": False}


def amdsmi_get_gpu_total_ecc_count(handle):
    _called("amdsmi_get_gpu_total_ecc_count")
    return {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0}


def amdsmi_get_pcie_info(handle):
    _called("amdsmi_get_pcie_info")
    metric = {"pcie_width": 16, "pcie_speed": 32000, "pcie_replay_count": 4}
    return {"pcie_static": {"max_pcie_width": 16}, "pcie_metric": metric}


def amdsmi_get_gpu_process_list(handle):
    _called("amdsmi_get_gpu_process_list")
    pid = int(os.environ.get("FAKE_AMDSMI_PID", "1"))
    return [{"name": "python3", "pid": pid, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 2**30}}]
