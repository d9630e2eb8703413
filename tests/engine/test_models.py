"""The Llama forward pass against a plain float64 one, and what the registry builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.layers import linear as linear_module
from infradoc_engine.layers.linear import FusedRows, Linear
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.models import registry
from infradoc_engine.models.llama import weight_bytes
from infradoc_engine.sampler import SamplingParams
from infradoc_engine.weights import ModelFileError, ModelFiles, open_model
from infradoc_engine.weights.config import KNOWN_ARCHITECTURES


def naive_logits(files: ModelFiles, tokens: list[int]) -> torch.Tensor:
    """All logits of one sequence, in float64, straight from the formulas; [len(tokens), vocab_size]."""
    c = files.config
    w = {name: tensor.double() for name, tensor in files.tensors()}
    count, half = len(tokens), c.head_dim // 2

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps).sqrt() * weight

    def turn(x: torch.Tensor) -> torch.Tensor:
        angle = torch.outer(torch.arange(count).double(), c.rope_theta ** (-torch.arange(half).double() / half))
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    x = w["embed_tokens"][tokens]
    for i in range(c.num_layers):
        at = f"layers.{i}."
        h = norm(x, w[at + "attn_norm"])
        q, k, v = (
            (h @ w[f"{at}{n}_proj"].T).view(count, heads, c.head_dim)
            for n, heads in (("q", c.num_heads), ("k", c.num_kv_heads), ("v", c.num_kv_heads))
        )
        group = c.num_heads // c.num_kv_heads
        q, k, v = turn(q), turn(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim**0.5
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
        x = x + mixed.reshape(count, -1) @ w[at + "o_proj"].T
        h = norm(x, w[at + "mlp_norm"])
        gate = h @ w[at + "gate_proj"].T
        x = x + (gate * gate.sigmoid() * (h @ w[at + "up_proj"].T)) @ w[at + "down_proj"].T
    return norm(x, w["norm"]) @ w["embed_tokens"].T


TOKENS = [3, 250, 17, 17, 99, 4, 5, 6, 200, 31, 42]


@pytest.mark.parametrize("chunks", [[11], [4, 7], [1] * 11, [6, 1, 4]])
def test_logprobs_against_float64(tiny_gguf: Callable[..., Path], chunks: list[int]) -> None:
    files = open_model(tiny_gguf())
    runner = ModelRunner(files, block_size=4, max_num_seqs=2, max_model_len=64, max_num_batched_tokens=64)
    expected = naive_logits(files, TOKENS).log_softmax(-1)
    start = 0
    for step, count in enumerate(chunks):
        part = ScheduledRequest("a", TOKENS[start : start + count], start, [5, 2, 7], True, count > 1)
        picked = runner.execute(ScheduleOutput(step, [part]), {"a": SamplingParams(0.0, logprobs=260)})["a"]
        start += count
        assert picked.top_logprobs is not None
        ours = torch.tensor([value for _, value in sorted(picked.top_logprobs)], dtype=torch.float64)
        torch.testing.assert_close(ours, expected[start - 1], atol=1e-4, rtol=1e-4)
        assert picked.token_id == int(expected[start - 1].argmax())


def test_folder_and_file_give_the_same_logprobs(
    tiny_gguf: Callable[..., Path], tiny_folder: Callable[..., Path]
) -> None:
    results = []
    for path in (tiny_gguf(), tiny_folder()):
        runner = ModelRunner(open_model(path), block_size=4, max_num_seqs=2, max_model_len=64)
        part = ScheduledRequest("a", TOKENS, 0, [0, 1, 2], True, True)
        results.append(runner.execute(ScheduleOutput(0, [part]), {"a": SamplingParams(0.0, logprobs=20)}))
    assert results[0] == results[1]


def test_without_packed_matmuls_the_numbers_agree(
    tiny_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_model(tiny_gguf())
    monkeypatch.setattr(linear_module, "can_pack", lambda device, dtype: False)
    runner = ModelRunner(files, block_size=4, max_num_seqs=2, max_model_len=64)
    part = ScheduledRequest("a", TOKENS, 0, [0, 1, 2], True, True)
    picked = runner.execute(ScheduleOutput(0, [part]), {"a": SamplingParams(0.0, logprobs=260)})["a"]
    assert picked.top_logprobs is not None
    ours = torch.tensor([value for _, value in sorted(picked.top_logprobs)], dtype=torch.float64)
    torch.testing.assert_close(ours, naive_logits(files, TOKENS).log_softmax(-1)[-1], atol=1e-4, rtol=1e-4)


def test_bfloat16_runs_and_is_near(tiny_folder: Callable[..., Path]) -> None:
    files = open_model(tiny_folder())
    runner = ModelRunner(files, dtype="bfloat16", block_size=4, max_num_seqs=2, max_model_len=64)
    part = ScheduledRequest("a", TOKENS, 0, [0, 1, 2], True, True)
    picked = runner.execute(ScheduleOutput(0, [part]), {"a": SamplingParams(0.0, logprobs=260)})["a"]
    assert picked.top_logprobs is not None and runner.kv_bytes_per_token() == 2 * 2 * 2 * 8 * 2
    ours = torch.tensor([value for _, value in sorted(picked.top_logprobs)], dtype=torch.float64)
    torch.testing.assert_close(ours, naive_logits(files, TOKENS).log_softmax(-1)[-1], atol=0.3, rtol=0.1)


@pytest.mark.parametrize("rows", [1, 3, 32, 65])
def test_linear_against_float64(rows: int) -> None:
    weight, x = torch.randn(40, 24), torch.randn(rows, 24)
    layer = Linear(weight)
    torch.testing.assert_close(layer(x).double(), x.double() @ weight.double().T, atol=1e-4, rtol=1e-4)
    assert layer.num_bytes == 40 * 24 * 4


def test_fused_rows_stand_in_the_named_order() -> None:
    a, b = torch.randn(3, 8), torch.randn(5, 8)
    fused = FusedRows({"a": 3, "b": 5}, 8, torch.float32, torch.device("cpu"))
    assert not fused.put("b", b)
    assert fused.put("a", a)
    x = torch.randn(2, 8)
    torch.testing.assert_close(fused.finish()(x), x @ torch.cat((a, b)).T, atol=1e-5, rtol=1e-5)


def test_registry_and_readers_know_the_same_names() -> None:
    assert set(registry.MODELS) == set(KNOWN_ARCHITECTURES)


def test_registry_refuses_in_one_sentence(tiny_gguf: Callable[..., Path]) -> None:
    files = open_model(tiny_gguf())
    config = replace(files.config, architecture="rwkv")
    with pytest.raises(ModelFileError, match=r"'rwkv' is not known \(known: llama\)"):
        registry.build(config, files.tensors(), torch.float32, torch.device("cpu"), 8)


def test_weight_bytes_is_known_before_the_load(tiny_gguf: Callable[..., Path]) -> None:
    files = open_model(tiny_gguf())
    model = registry.build(files.config, files.tensors(), torch.float32, torch.device("cpu"), 64)
    angles = 2 * 64 * files.config.head_dim * 4
    assert model.weight_bytes - angles == weight_bytes(files.config, torch.float32, torch.device("cpu"))
