"""Splits and tiles of the attention kernels: host arithmetic."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infradoc_kernels import aot
from infradoc_kernels import paged_attention_settings as settings
from infradoc_kernels.paged_attention_decode import plan_decode_splits, target_configurations
from infradoc_kernels.paged_batch import PagedBatch, plan_paged_batch

H200 = settings.KNOWN_LIMITS["sm_90"]
SLOTS = H200.processors * 3


@given(st.integers(1, 300), st.integers(1, 16), st.lists(st.integers(1, 2000), min_size=1, max_size=30))
def test_splits_are_bounded_and_cover_the_longest(copies: int, programs: int, tiles: list[int]) -> None:
    splits = settings.choose_splits(copies * len(tiles), programs, max(tiles), copies * sum(tiles), SLOTS)
    assert 1 <= splits.count <= settings.SPLIT_CANDIDATES[-1]
    assert splits.count * splits.min_tiles >= max(tiles)
    assert splits.count == 1 or splits.min_tiles >= settings.MIN_TILES


def test_one_request_alone_is_cut_until_the_device_is_full() -> None:
    splits = settings.choose_splits(1, 8, 512, 512, SLOTS)
    assert 0.6 * SLOTS <= 8 * splits.count <= SLOTS


def test_a_batch_that_fills_the_device_is_cut_little() -> None:
    assert settings.choose_splits(512, 8, 128, 512 * 128, SLOTS).count <= 2


def test_a_long_request_among_short_ones_is_cut_as_if_alone() -> None:
    even = settings.choose_splits(64, 8, 512, 64 * 512, SLOTS)
    uneven = settings.choose_splits(64, 8, 512, 512 + 63 * 4, SLOTS)
    assert uneven.min_tiles < even.min_tiles


def plan(lens: list[int], **options: Any) -> PagedBatch:
    return plan_paged_batch([list(range(64))] * len(lens), [1] * len(lens), lens, block_size=16, **options)


def test_a_plan_counts_the_decodes_alone() -> None:
    batch = plan_paged_batch([list(range(64))] * 3, [1, 900, 1], [30, 1000, 50], block_size=16)
    assert (batch.max_context_len, batch.max_decode_len, batch.decode_tokens) == (1000, 50, 80)


def test_unknown_decode_lengths_count_as_the_longest_context() -> None:
    q, cache = torch.zeros(4, 8, 128), torch.zeros(1, 2, 16, 128)
    known, unknown = plan([1000] * 4), plan([1000] * 4)
    unknown.max_decode_len = unknown.decode_tokens = 0
    assert plan_decode_splits(q, cache, known) == plan_decode_splits(q, cache, unknown)


def test_captured_splits_suit_the_longest_context_and_short_ones() -> None:
    q, cache = torch.zeros(4, 8, 128), torch.zeros(1, 2, 16, 128)
    batch = plan([16] * 4)
    batch.max_context_len = 32768
    splits = plan_decode_splits(q, cache, batch, captured=True)
    assert splits.count > 8 and splits.min_tiles == settings.MIN_TILES
    assert plan_decode_splits(q, cache, batch).count == 1


def test_a_window_bounds_what_is_cut() -> None:
    q, cache = torch.zeros(1, 8, 128), torch.zeros(1, 2, 16, 128)
    assert plan_decode_splits(q, cache, plan([1000], window=20)).count == 1
    assert plan_decode_splits(q, cache, plan([1000])).count > 1


@pytest.mark.parametrize("target", settings.KNOWN_LIMITS)
@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize("head_dim", [64, 72, 80, 96, 128, 160, 256])
def test_tiles_are_powers_of_two_that_leave_room(target: str, element_bytes: int, head_dim: int) -> None:
    limits = settings.KNOWN_LIMITS[target]
    tilings = [settings.decode_tiling(group, head_dim, element_bytes, limits) for group in (1, 7, 71)]
    for has_window in (False, True):
        tilings += [settings.prefill_tiling(n, head_dim, element_bytes, has_window, limits) for n in (2, 64, 65, 9999)]
    for tiling in tilings:
        assert min(tiling.rows, tiling.keys) >= settings.MIN_ROWS
        assert math.log2(tiling.rows).is_integer() and math.log2(tiling.keys).is_integer()
        key_bytes = 2 * settings.next_power_of_2(head_dim) * element_bytes
        assert (tiling.num_stages - 1) * tiling.keys * key_bytes <= limits.shared_bytes


def test_three_decode_programs_of_hopper_fit_a_multiprocessor() -> None:
    """With fewer, too few bytes are on their way to use the bandwidth. Compute capability 9.0 has 65536 registers and
    228 KiB of shared memory; test_aot.py holds the table to what the compiler says."""
    first = target_configurations("sm_90")[0]
    rows = json.loads(aot.TABLE.read_text())["rows"]
    (row,) = [row for row in rows if row["configuration"] == first.name and row["target"] == "sm_90"]
    assert settings.decode_tiling(4, 128, 2, H200).resident == 3
    assert row["registers"] * 32 * row["num_warps"] * 3 <= 65536 and (row["shared_bytes"] + 1024) * 3 <= 228 * 1024
