"""Advice on the device: cooling, power limit, service; and silence where another of them is meant."""

from __future__ import annotations

import pytest

from infradoc_rules.advise import ADVISERS, Advice
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact, Series
from infradoc_rules.promql import STALE_NAN

T0 = 1_700_000_000.0
TIMES = [T0 + second for second in range(21)]


def _advice(reasons=(), *, limit=None, default=None, events=(), lang="en", values=None):
    rows = [
        Series("gpu_throttle_active", {"gpu": gpu, "reason": reason}, TIMES, values or [1.0] * 21)
        for gpu, reason in reasons
    ]
    if limit is not None:
        rows.append(Series("gpu_power_limit_watts", {"gpu": "0"}, TIMES, [float(limit)] * 21))
    facts = [] if default is None else [Fact("gpu.power_limit_default_watts", default, "api")]
    frame = MemoryFrame.build(rows, now=TIMES[-1], facts=facts, events=events, system="vllm")
    return Advice(frame, {}, lang)


def _names(advice):
    wanted = ("fix_gpu_cooling", "raise_gpu_power_limit", "service_gpu")
    return [name for name in wanted if ADVISERS[name](advice) is not None]


def test_each_reason_has_its_own_remedy():
    assert _names(_advice([("0", "hw_thermal")])) == ["fix_gpu_cooling"]
    assert _names(_advice([("0", "power_cap")], limit=300, default=700.0)) == ["raise_gpu_power_limit"]
    assert _names(_advice([("0", "power_cap")], limit=700, default=700.0)) == []  # at its default: as designed
    assert _names(_advice([("0", "power_brake")])) == ["service_gpu"]


def test_numbers_and_flags():
    action = ADVISERS["raise_gpu_power_limit"](
        _advice([("0", "power_cap"), ("2", "power_cap")], limit=300, default=700.0)
    )
    assert (action.from_value, action.to_value, action.live) == (300, 700, False)
    assert action.flag == "nvidia-smi -i 0,2 -pl 700" and "400 W more" in action.cost


def test_stale_and_rare_flags_do_not_count():
    assert _names(_advice([("0", "hw_thermal")], values=[1.0] * 5 + [0.0] * 14 + [STALE_NAN] * 2)) == ["service_gpu"]


@pytest.mark.parametrize(
    ("events", "part"),
    [
        ([("gpu_lost", {"gpu": 1})], "GPU 1 is lost; power-cycle the host"),
        ([("xid", {"code": 94, "gpu": 0, "name": "n", "detail": "device: restart"})], "Xid 94 on GPU 0 (n); restart"),
        ([("xid", {"code": 74, "gpu": 0, "name": "n", "detail": "device: link"})], "check the NVLink"),
        (
            [("xid", {"code": 31, "gpu": 0, "name": "n", "detail": "application: restart"})],
            "drain the server and reset",
        ),
        ([], "drain the server and reset"),
    ],
)
def test_service_names_the_event_and_what_it_asks_for(events, part):
    rows = [Event(name, place, fields, T0 + 1) for place, (name, fields) in enumerate(events)]
    action = ADVISERS["service_gpu"](_advice(events=rows))
    assert part in action.why and action.knob == "gpu_device" and action.risk == "disruptive"
    assert part not in ADVISERS["service_gpu"](_advice(events=rows, lang="zh")).why
