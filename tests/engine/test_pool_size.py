"""Accounts and refusals on a GPU, as arithmetic: whose memory it is, and settings that do fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.gpu_account import GpuMemory
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.pool_size import NOTHING_FITS, PoolRequest, graph_refusal, size_pool, weights_refusal

MIB = 1 << 20
ASK = PoolRequest(
    device_bytes=80_000 * MIB,
    utilization=0.9,
    weight_bytes=14_000 * MIB,
    activation_bytes=1_000 * MIB,
    other_bytes=500 * MIB,
    bytes_per_token=MIB // 2,
    block_size=16,
    max_model_len=4096,
    max_num_seqs=64,
    pool_tokens=None,
    graph_bytes=500 * MIB,
    total_bytes=80_000 * MIB,
)
FIELDS = {
    "gpu_memory_utilization": "utilization",
    "kv_pool_tokens": "pool_tokens",
    "device_memory_bytes": "device_bytes",
}


def with_setting(ask: PoolRequest, knob: str, value: Any) -> PoolRequest:
    if knob == "enforce_eager":
        return replace(ask, graph_bytes=0)
    return replace(ask, **{FIELDS.get(knob, knob): value})


def test_graphs_and_others_are_taken_off_the_pool() -> None:
    assert size_pool(ASK) == (72_000 - 16_000) // 8
    assert size_pool(replace(ASK, graph_bytes=0)) == (72_000 - 15_500) // 8
    account = ASK.account()
    assert account["graphs"] == 500 * MIB and account["other"] == 500 * MIB
    assert sum(account.values()) == 72_000 * MIB


def test_another_process_is_named_and_more_of_the_device_is_offered() -> None:
    with pytest.raises(NotEnoughMemory) as caught:
        size_pool(replace(ASK, other_bytes=55_000 * MIB))
    text = str(caught.value)
    assert "other processes and the driver 55000 MiB" in text and "CUDA graphs 500 MiB" in text and "\n" not in text
    assert "device_memory_bytes" not in caught.value.fits  # a GPU has what it has
    assert caught.value.fits["gpu_memory_utilization"] == 0.907
    assert "--gpu-memory-utilization 0.907 or --max-model-len" in text


def test_doing_without_graphs_is_offered_when_that_is_enough() -> None:
    tight = replace(ASK, other_bytes=54_300 * MIB)  # 2,200 MiB are left, 2,048 needed: fits
    size_pool(tight)
    with pytest.raises(NotEnoughMemory) as caught:
        size_pool(replace(tight, graph_bytes=900 * MIB))
    assert caught.value.fits["enforce_eager"] is True and "or --enforce-eager or" in str(caught.value)


@given(
    st.integers(0, 90_000),
    st.integers(0, 3_000),
    st.integers(1, 20_000),
    st.sampled_from([None, 2_000, 4_096, 50_000, 300_000]),
    st.sampled_from([0.3, 0.8, 0.97]),
)
def test_every_offered_setting_fits(others: int, graphs: int, length: int, tokens: int | None, share: float) -> None:
    ask = replace(
        ASK,
        other_bytes=others * MIB,
        graph_bytes=graphs * MIB,
        max_model_len=length,
        pool_tokens=tokens,
        utilization=share,
    )
    try:
        size_pool(ask)
    except NotEnoughMemory as error:
        assert str(error).endswith(".") and "\n" not in str(error)
        assert bool(error.fits) != (NOTHING_FITS in str(error))
        if "kv_pool_tokens" in error.fits and tokens is not None and tokens < length:
            return  # one request has to fit first: a second refusal may name the memory
        for knob, value in error.fits.items():
            assert size_pool(with_setting(ask, knob, value)) > 0


def test_weights_that_do_not_fit_say_who_holds_the_rest() -> None:
    error = weights_refusal("m", 30_000 * MIB, 45_000 * MIB, 80_000 * MIB, 0.9)
    assert "take 30000 MiB" in str(error) and "hold 45000 MiB" in str(error)
    assert error.fits == {"gpu_memory_utilization": 0.938} and error.account["other"] == 45_000 * MIB
    none = weights_refusal("m", 60_000 * MIB, 45_000 * MIB, 80_000 * MIB, 0.9)
    assert not none.fits and NOTHING_FITS in str(none)


def test_graphs_without_memory_name_the_way_out() -> None:
    error = graph_refusal(64, {"weights": 100 * MIB, "kv": 0, "other": 7 * MIB}, 200 * MIB)
    assert "weights 100 MiB, other 7 MiB" in str(error) and "--enforce-eager" in str(error) and "\n" not in str(error)
    assert error.fits == {"enforce_eager": True}


def test_others_are_what_is_used_beyond_our_own() -> None:
    seen = GpuMemory(free=20, total=100, reserved=50)
    assert seen.others(device_bytes=100) == 30
    assert seen.others(device_bytes=100, beside_torch=10) == 20
    assert seen.others(device_bytes=80) == 10  # 20 of the 30 lie outside the engine's share
    assert seen.others(device_bytes=60) == 0
    assert GpuMemory(free=60, total=100, reserved=50).others(100) == 0  # readings a moment apart
