"""What snapshots and kernel lines say of devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infradoc_rules.model import Event
from infradoc_rules.patterns import scan
from infradoc_rules.summaries.devices import XID, board_watts
from infradoc_rules.summaries.hardware import summary

ROOT = Path(__file__).parents[2]


def _facts(*rows):
    events = [Event(name, order, fields) for order, (name, fields) in enumerate(rows, start=1)]
    return {fact.name: fact.value for fact in summary(events, {}, None)}


def _state(**fields):
    return "gpu_state", {"gpu": 0, "utilization": 0.98, **fields}


def _reason(reason):
    return "gpu_clocks_reason", {"gpu": 0, "reason": reason}


SLOW = {"clock_hertz": 850e6, "clock_max_hertz": 1410e6}
FULL = {"clock_hertz": 1380e6, "clock_max_hertz": 1410e6}
LOWERED = {"power_watts": 248, "power_limit_watts": 250, "power_default_watts": 400}
OWN = {"power_watts": 71.9, "power_limit_watts": 72, "power_default_watts": 72}


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("heat", [_state(**SLOW), _reason("sw_thermal")]),
        ("heat", [_state(temperature=93, power_watts=104, power_limit_watts=250)]),
        ("brake", [_state(**SLOW), _reason("power_brake"), _reason("hw_slowdown")]),
        ("power", [_state(**SLOW, **LOWERED)]),
        ("power", [_state(name="NVIDIA H100 80GB HBM3", power_watts=348, power_limit_watts=350)]),
        ("clocks", [_state(**SLOW), _reason("clocks_setting")]),
        ("clocks", [_state(pstate=8)]),
        ("heat", [_reason("hw_slowdown"), _reason("hw_thermal")]),  # a part of `nvidia-smi -q` without utilization
        ("", [_reason("power_cap")]),
        ("", [_state(**FULL), _reason("hw_slowdown")]),  # a flash at a change of state
        ("", [_state(**SLOW, **OWN), _reason("power_cap")]),  # a small board at the cap that it is made for
        ("", [_state(name="NVIDIA A10", power_watts=148, power_limit_watts=150, temperature=66)]),
        ("", [_state(**{**SLOW, "utilization": 0.02}), _reason("sw_thermal")]),  # idle
        ("", [_state(temperature=91, power_watts=345, power_limit_watts=350)]),  # hot, and at full power
        ("", [_state(pstate=2)]),
    ],
)
def test_why_a_busy_device_is_slow(why, rows):
    assert _facts(*rows)["gpu.throttled"] == why


def test_a_clock_that_falls_over_time():
    rows = [_state(sample=n, clock_hertz=1900e6 if n < 4 else 900e6, temperature=70 + 2 * n) for n in range(10)]
    found = _facts(*rows)
    assert found["gpu.throttled"] == "heat" and found["gpu.clock_share"] == pytest.approx(900 / 1900)


def test_without_a_device_nothing_is_said_of_clocks():
    assert "gpu.throttled" not in _facts(("stats_line", {"running": 3}))


@pytest.mark.parametrize(
    ("what", "row"),
    [
        ("lost", ("xid", {"code": 79})),
        ("lost", ("gpu_lost", {})),
        ("memory", ("device_error", {"what": "memory"})),
        ("memory", _state(remap_pending=True)),
        ("memory", _state(ecc_uncorrected=1)),
        ("link", ("xid", {"code": 74})),
        ("bus", ("device_error", {"what": "bus"})),
        ("device", _state(failed="ERR!")),
        ("device", ("xid", {"code": 119})),
        ("", ("xid", {"code": 43})),
        ("", ("xid", {"code": 31})),
        ("", ("xid", {"code": 63})),
        ("", _state(ecc_uncorrected=0, remap_pending=False, remap_failed=False)),
    ],
)
def test_what_fails(what, row):
    assert _facts(row)["gpu.failed"] == what


def test_the_most_drastic_sign_is_named():
    found = _facts(("xid", {"code": 94}), ("xid", {"code": 79}), ("xid", {"code": 45}))
    assert (found["gpu.failed_code"], found["gpu.failed_remedy"], found["gpu.failures"]) == (79, "reboot", 2)


def test_the_codes_are_those_of_the_agent():
    table = yaml.safe_load((ROOT / "infradoc/sources/xid.yaml").read_text())
    assert {code: row["action"] for code, row in table.items() if row["severity"] == "device"} == {
        code: remedy for code, (_, remedy) in XID.items()
    }


def test_boards_by_the_names_that_the_tool_prints():
    assert board_watts("NVIDIA H100 80GB HBM3") == 700 and board_watts("NVIDIA H100 PCIe") == 350
    assert board_watts("Tesla T4") == 70 and board_watts("NVIDIA L4") == 72 and board_watts("NVIDIA L40S") == 350
    assert board_watts("NVIDIA A100-SXM4-80GB") == 400 and board_watts("Radeon") is None


@pytest.mark.parametrize(
    ("hot", "why"),
    [({"temperature": 88}, "heat"), ({"temperature": 60}, "")],  # a cool one may be another model
)
def test_a_hot_device_that_is_slower_than_those_beside_it(hot, why):
    rows = [("gpu_state", {"gpu": n, "utilization": 1.0, "clock_hertz": 1980e6, "temperature": 62}) for n in range(3)]
    found = _facts(*rows, ("gpu_state", {"gpu": 3, "utilization": 1.0, "clock_hertz": 720e6, **hot}))
    assert found["gpu.throttled"] == why


@pytest.mark.parametrize(("clock", "why"), [(800e6, "heat"), (1900e6, "")])
def test_a_very_hot_device_that_crawls(clock, why):
    row = {"gpu": 0, "utilization": 1.0, "clock_hertz": clock, "temperature": 92}
    assert _facts(("gpu_state", row))["gpu.throttled"] == why


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            ["NVRM: The NVIDIA GPU 0000:b3:00.0", "   NVRM: fallen off the bus and is not responding to commands."],
            "lost",
        ),
        (["Unable to determine the device handle for GPU0: 0000:5E:00.0: Unknown Error"], "lost"),
        (["NVRM: The NVIDIA probe routine failed for 1 device(s)."], "device"),
        (["amdgpu 0000:83:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block"], "memory"),
        (["amdgpu 0000:83:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block"], ""),
        (["|   Memory                  | Fail - GPU: 3                                  |"], "device"),
        (["|   Memory                  | Pass - All                                     |"], ""),
    ],
)
def test_words_of_drivers_and_their_tools(lines, what):
    found = {fact.name: fact.value for fact in summary([*scan(lines).events, Event("engine_ready", 99)], {}, None)}
    assert found["gpu.failed"] == what
