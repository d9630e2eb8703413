"""`nvidia-smi` in every form, alone and between other lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.nvidia_smi import NvidiaSmiKind
from infradoc.artefacts.kinds.nvidia_state import reading, reason_of, reasons_in
from infradoc.artefacts.model import Segment

TABLE = """\
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|   0  NVIDIA L40S                    On  |   00000000:0B:00.0 Off |                    0 |
| N/A   38C    P0             81W /  350W |    9246MiB /  46068MiB |      7%      Default |
|   1  NVIDIA L40S                    On  |   00000000:0C:00.0 Off |                    2 |
| 45%   71C    P2            341W / 350W|  22310MiB / 46068MiB |     98%      Default |
| Processes:                                                                              |
|    1   N/A  N/A      2211      C   /usr/bin/python3                             9238MiB |
|    1      4400      C   python                       100MiB |
""".splitlines()

QUERY = """\
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Clocks Throttle Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 4096 MiB
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 3
        Aggregate
            DRAM Uncorrectable            : 40
    Remapped Rows
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Clocks
        SM                                : 705 MHz
    Applications Clocks
        Graphics                          : 1410 MHz
    Max Clocks
        SM                                : 1410 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 77
            Type                          : C
            Name                          : python3
            Used GPU Memory               : 4000 MiB
""".splitlines()

CSV = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], clocks.sm [MHz], clocks_throttle_reasons.active
2025/05/04 21:00:00.120, 0, NVIDIA A100, 97 %, 100 MiB, 850 MHz, 0x0000000000000020
2025/05/04 21:00:05.120, 0, NVIDIA A100, 98 %, 100 MiB, 860 MHz, 0x0000000000000001
""".splitlines()

DMON = """\
# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk pviol tviol
# Idx     W     C     C     %     %     %     %   MHz   MHz     %  bool
    0   249    64     -    98    50     0     0  1593   850    91     0
    0   249    64     -    98    50     0     0  1593   855    90     1
""".splitlines()


def _read(lines):
    return NvidiaSmiKind().read(Segment("nvidia_smi", "smi.txt", 1, lines))


def _of(artefact, name):
    return [event for event in artefact.events if event.name == name]


def test_a_table_gives_devices_and_processes_of_either_width():
    found = _read(TABLE)
    first, second = _of(found, "gpu_state")
    assert first.fields["name"] == "NVIDIA L40S" and first.fields["utilization"] == 0.07
    assert second.fields["ecc_uncorrected"] == 2 and second.fields["pstate"] == 2
    assert second.fields["used_bytes"] == 22310 << 20 and second.source == "smi.txt:5"
    assert [(e.fields["gpu"], e.fields["pid"], e.fields["bytes"]) for e in _of(found, "gpu_process")] == [
        (1, 2211, 9238 << 20),
        (1, 4400, 100 << 20),
    ]
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["gpu.count"] == 2 and facts["gpu.memory_bytes"] == 46068 << 20 and facts["gpu.utilization"] == 0.98


def test_a_second_table_is_a_second_sample():
    assert [event.fields["sample"] for event in _of(_read(TABLE + TABLE), "gpu_state")] == [0, 0, 1, 1]


def test_a_query_gives_reasons_errors_clocks_and_processes():
    found = _read(QUERY)
    (state,) = _of(found, "gpu_state")
    assert state.fields["ecc_uncorrected"] == 3, "aggregate counts are history"
    assert state.fields["remap_pending"] is True and state.fields["remap_failed"] is False
    assert (state.fields["clock_hertz"], state.fields["clock_max_hertz"]) == (705_000_000, 1_410_000_000)
    assert {event.fields["reason"] for event in _of(found, "gpu_clocks_reason")} == {"power_cap", "hw_thermal"}
    (process,) = _of(found, "gpu_process")
    assert process.fields == {"gpu": 0, "name": "python3", "pid": 77, "bytes": 4000 << 20}


@pytest.mark.parametrize("lost", [4, 99])
def test_a_query_that_lost_its_indentation(lost):
    lines = [
        "GPU 00000000:4F:00.0",
        "    Clocks Event Reasons",
        "        HW Slowdown                       : Active",
        "            HW Power Brake Slowdown       : Active",
        "    Utilization",
        "        Gpu                               : 100 %",
        "    Clocks",
        "        SM                                : 285 MHz",
        "    Max Clocks",
        "        SM                                : 1410 MHz",
    ]
    artefact = _read([line[min(lost, len(line) - len(line.lstrip())) :] for line in lines])
    (state,) = _of(artefact, "gpu_state")
    assert [state.fields[name] for name in ("utilization", "clock_hertz", "clock_max_hertz")] == [1.0, 285e6, 1410e6]
    assert [row.fields["reason"] for row in _of(artefact, "gpu_clocks_reason")] == ["hw_slowdown", "power_brake"]


def test_readings_of_the_module_are_not_those_of_the_gpu():
    text = """\
GPU 00000001:01:00.0
    GPU Recovery Action                   : Drain and Reset
    GPU Power Readings
        Average Power Draw                : 401.50 W
        Current Power Limit               : 700.00 W
    Module Power Readings
        Average Power Draw                : 900.10 W
        Current Power Limit               : N/A
    Clocks Event Reasons Counters
        SW Thermal Slowdown               : 903158 us""".splitlines()
    (state,) = _of(_read(text), "gpu_state")
    assert (state.fields["power_watts"], state.fields["power_limit_watts"]) == (401.5, 700.0)
    assert state.fields["failed"] == "recovery action: Drain and Reset"
    assert _of(_read(text), "gpu_clocks_reason") == []


def test_a_series_gives_a_state_a_row_with_its_time():
    found = _read(CSV)
    first, second = _of(found, "gpu_state")
    assert second.time - first.time == 5 and second.fields["sample"] == 1
    assert [event.fields["reason"] for event in _of(found, "gpu_clocks_reason")] == ["sw_thermal"]
    assert {fact.name: fact.value for fact in found.facts}["gpu.utilization_median"] == 0.975


def test_rows_whose_stamps_were_taken_off_are_read_too():
    rows = [CSV[0], *(line.split(", ", 1)[1] for line in CSV[1:])]
    assert len(_of(_read(rows), "gpu_state")) == 2


def test_units_may_be_named_in_the_header_alone():
    rows = ["index, memory.used [MiB], clocks.sm [MHz]", "3, 512, 1410"]
    (state,) = _of(_read(rows), "gpu_state")
    assert (state.fields["gpu"], state.fields["used_bytes"], state.fields["clock_hertz"]) == (3, 512 << 20, 1.41e9)


def test_dmon_gives_violations_as_reasons():
    found = _read(DMON)
    assert [event.fields["utilization"] for event in _of(found, "gpu_state")] == [0.98, 0.98]
    assert [event.fields["reason"] for event in _of(found, "gpu_clocks_reason")] == [
        "power_cap",
        "hw_thermal",
        "power_cap",
    ]


@pytest.mark.parametrize("lines", [TABLE, QUERY, CSV, DMON])
def test_a_form_between_log_lines_is_claimed_and_they_are_not(lines):
    text = ["INFO 08-01 10:00:00 [core.py:58] engine up", *lines, 'INFO: 10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK']
    claimed = {index for start, end in NvidiaSmiKind().spans(text) for index in range(start, end)}
    assert 0 not in claimed and len(text) - 1 not in claimed
    assert len(_read([text[index] for index in sorted(claimed)]).events) == len(_read(lines).events)


def test_a_markdown_table_and_a_traceback_are_not_claimed():
    text = ["| task | score |", "|------|-------|", "| mmlu | 61.2 |", "    File : x", "a, b, c", "1, 2, 3"]
    assert NvidiaSmiKind().spans(text) == []


def test_readings_with_units_and_without():
    assert reading("73310MiB") == 73310 * 2**20 and reading("98 %") == 0.98 and reading("350.1 W") == 350.1
    assert reading("[N/A]") is None and reading("ERR!") is None and reading("12", "MHz") == 12e6
    assert reason_of("HW Power Brake Slowdown") == "power_brake" and reason_of("Idle") is None
    assert reasons_in("0x0000000000000064") == ["power_cap", "sw_thermal", "hw_thermal"] and reasons_in("n/a") == []


@given(st.lists(st.text(max_size=120) | st.sampled_from(TABLE + QUERY + CSV + DMON), max_size=40))
def test_any_text_is_survived(lines):
    kind = NvidiaSmiKind()
    for start, end in kind.spans(lines):
        assert 0 <= start < end <= len(lines)
    kind.read(Segment("nvidia_smi", "smi.txt", 1, lines))


REASONS = ["HW Slowdown                       : Active", "    HW Thermal Slowdown           : Active"]
REMAPPED = [
    "    Remapped Rows",
    "        Uncorrectable Error               : 3",
    "        Pending                           : Yes",
]
POWER = [
    "    Power Readings",
    "        Power Draw                        : 150.10 W",
    "    Clocks Event Reasons",
    "        SW Power Cap                      : Active",
]


@pytest.mark.parametrize("indent", [0, 4])
def test_parts_of_a_query_without_its_head(indent):
    def read(lines):
        text = [line[4 - indent :] if line.startswith("    ") else line for line in lines]
        assert NvidiaSmiKind().spans(text) == [(0, len(text))]
        return NvidiaSmiKind().read(Segment("nvidia_smi", "q.txt", 1, text)).events

    assert {e.fields["reason"] for e in read(REASONS) if e.name == "gpu_clocks_reason"} == {"hw_slowdown", "hw_thermal"}
    assert [e.fields["remap_pending"] for e in read(REMAPPED)] == [True]
    state, reason = read(POWER)
    assert (state.fields["power_watts"], reason.fields["reason"]) == (150.1, "power_cap")


def test_sections_of_another_program_are_not_claimed():
    assert NvidiaSmiKind().spans(["    Temperature", "        CPU : 50 C", "GPU is busy"]) == []
