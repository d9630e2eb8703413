"""Greedy tokens against the transformers library on the same file, by `tests/data/make_reference_tokens.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.weights import open_model

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "reference_tokens.json").read_text())["prompts"]
PROMPTS = [row["prompt"] for row in REFERENCE]
CLOSE = 1e-3  # a logit gap that rounding may decide either way


@pytest.fixture(scope="module")
def runner(model_path: Path) -> Iterator[ModelRunner]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two would wait for each other wherever a core is shared
    yield ModelRunner(
        open_model(model_path), max_model_len=1024, max_num_seqs=16, max_num_batched_tokens=2048, kv_pool_tokens=4096
    )
    torch.set_num_threads(threads)


def assert_reference(tokens: dict[str, list[int]]) -> None:
    assert len(tokens) == len(REFERENCE)
    for index, row in enumerate(REFERENCE):
        ours, theirs = tokens[str(index)], row["tokens"]
        assert len(ours) == len(theirs) == 64
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), None)
        if first is not None:
            gap = row["gaps"][first]
            assert gap < CLOSE, f"prompt {index}, token {first}: {ours[first]}, not {theirs[first]}; logit gap {gap}"


def test_reference_covers_the_promised_lengths() -> None:
    lengths = [len(p) for p in PROMPTS]
    assert len(lengths) == 8 and min(lengths) == 5 and max(lengths) == 600
    assert sum(gap < CLOSE for row in REFERENCE for gap in row["gaps"]) < 4  # the exception stays an exception


def test_one_at_a_time(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    assert_reference(drive(runner, PROMPTS, 64, one_by_one=True, prefix_caching=False).tokens)


def test_all_in_one_batch(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    result = drive(runner, PROMPTS, 64)
    assert result.steps == 64  # one prefill step for all, then decodes
    assert_reference(result.tokens)


def test_chunked_prefill_mixed_with_decodes(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    result = drive(runner, PROMPTS, 64, max_num_batched_tokens=37)
    assert result.mixed_steps > 10
    assert_reference(result.tokens)


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_small_pool_that_preempts(runner: ModelRunner, drive: Callable[..., Any], prefix_caching: bool) -> None:
    result = drive(runner, PROMPTS, 64, num_blocks=52, max_num_batched_tokens=128, prefix_caching=prefix_caching)
    assert result.preemptions > 0
    assert_reference(result.tokens)


def test_cached_prefix_gives_the_same_tokens(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    twice = [p for p in PROMPTS[4:6] for _ in range(2)]
    result = drive(runner, twice, 16, one_by_one=True)
    assert result.prefix_hit_tokens > 200
    assert result.tokens["0"] == result.tokens["1"] == REFERENCE[4]["tokens"][:16]
    assert result.tokens["2"] == result.tokens["3"] == REFERENCE[5]["tokens"][:16]
