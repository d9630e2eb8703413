"""A launch as an account reads it, and what no engine would start with. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from infradoc_rules.defaults import Host, default_of
from infradoc_rules.sizing.behaviour import Behaviour, Version, behaviour
from infradoc_rules.sizing.dtypes import DTYPES, KV_DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.gpus import Gpu
from infradoc_rules.sizing.model import Model, SizingError
from infradoc_rules.units import GIB
from infradoc_rules.versions import Running

_STEP = (("max_num_seqs", 256), ("max_num_batched_tokens", 2048))  # with the smallest defaults
_NEWEST = (99, 0)
_VOCAB_PAD = 64  # vLLM rounds the vocabulary up to this before it shares it
_CHUNKED_ABOVE = 32_768  # vLLM's V0 engine computed a prompt in one step up to this max_model_len
_LONGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Setting:
    """A launch. None: what the engine takes by itself. dtype and kv_dtype are keys of DTYPES and KV_DTYPES.

    version: of vLLM, None for the newest that is known; eager: without CUDA graphs.
    """

    gpu: Gpu
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_model_len: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    fraction: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    eager: bool = False
    version: Version | None = None

    @property
    def behaviour(self) -> Behaviour:
        """What this version counts and reserves."""
        return behaviour(self.version)

    @property
    def share(self) -> float:
        """The memory fraction in force."""
        return self.behaviour.fraction if self.fraction is None else self.fraction

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.tensor_parallel * self.pipeline_parallel

    def length(self, model: Model) -> int:
        """Tokens of the longest request."""
        return self.max_model_len or model.max_positions

    def batch(self, model: Model) -> tuple[int, int]:
        """(requests, tokens) of a step. vLLM's defaults of a server grow with the device, but not on an A100, where
        they cost throughput (vllm-project/vllm pull request 17885)."""
        if self.behaviour.whole_prompts:
            length = self.length(model)
            tokens = 2048 if length > _CHUNKED_ABOVE else max(length, 2048)
            return self.max_num_seqs or 256, self.max_num_batched_tokens or tokens
        running = Running("vllm", ".".join(map(str, self.version or _NEWEST)), api="V1")
        host = Host(self.gpu.memory_bytes / GIB, self.gpu.name)
        seqs, tokens = (int(default_of(running, knob, host) or least) for knob, least in _STEP)
        return self.max_num_seqs or seqs, self.max_num_batched_tokens or tokens


def check(model: Model, setting: Setting) -> None:
    """Raise SizingError for what no engine would start with."""
    if not 0 < setting.share <= 1:
        raise SizingError(f"the memory fraction {setting.share:g} is outside 0 to 1")
    if setting.tensor_parallel < 1 or not shareable(model, setting.tensor_parallel):
        raise SizingError(
            f"the {model.heads} attention heads of {model.name} cannot be shared by {setting.tensor_parallel} GPUs"
        )
    if not 1 <= setting.pipeline_parallel <= model.layers:
        raise SizingError(
            f"{model.layers} layers of {model.name} cannot be cut into {setting.pipeline_parallel} stages"
        )
    if not 1 <= setting.length(model) < _LONGEST:
        raise SizingError(f"{model.name} does not say how long a request may be; give max_model_len")
    item_of(dtype_of(model, setting))
    kv_item(model, setting)
    if setting.quantization not in (None, "none", *QUANTIZATIONS):
        raise SizingError(f"quantization {setting.quantization!r} is not one of {', '.join(QUANTIZATIONS)}")


def shareable(model: Model, gpus: int) -> bool:
    """Whether tensor parallelism of that many GPUs starts: heads, key/value heads and the vocabulary must divide."""
    heads = model.heads % gpus == 0
    pairs = model.latent is not None or model.kv_heads % gpus == 0 or gpus % model.kv_heads == 0
    return heads and pairs and (ceil(model.vocab / _VOCAB_PAD) * _VOCAB_PAD) % gpus == 0


def item_of(dtype: str) -> int:
    """Bytes of a number. Raises SizingError."""
    if dtype not in DTYPES:
        raise SizingError(f"data type {dtype!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def kv_item(model: Model, setting: Setting) -> int:
    """Bytes of a number in the KV cache. Raises SizingError."""
    name = setting.kv_dtype or dtype_of(model, setting)
    if name not in KV_DTYPES:
        raise SizingError(f"KV data type {name!r} is not one of {', '.join(KV_DTYPES)}")
    return KV_DTYPES[name]


def dtype_of(model: Model, setting: Setting) -> str:
    """The launch's data type; by itself an engine loads a float32 checkpoint in 16 bits."""
    own = "float16" if DTYPES.get(model.dtype) == 4 else model.dtype
    return setting.dtype or own


def quantization_in(model: Model, setting: Setting) -> str | None:
    """The launch's quantization, else the checkpoint's."""
    return model.quantization if setting.quantization is None else setting.quantization
