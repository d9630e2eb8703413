"""What of a GPU's memory goes where when an engine of vLLM's kind starts, and whether a longest request fits. Pure.

Per GPU: budget = memory x fraction; what weights, activations and the engine leave of it is the KV cache. Graphs and
the sampler's warm-up come on top of the budget. The constants
below were set on start-up lines of vLLM, the experts' ones on gpt-oss-120b alone. Known misses of ERRORS: a 32B AWQ
model on two 24 GB cards (0.8.1) had 1.6 GiB less KV cache than estimated, and 0.6.5 printed 2.5 GiB of activations and
7.5 GiB of weights for a 32B GPTQ one on two of 16 GB where 0.24 and 9.0 are estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from infradoc_rules.sizing.dtypes import DTYPES, EXPERTS_ONLY, KV_DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.gpus import GIB, Gpu
from infradoc_rules.sizing.model import Model, SizingError

# Share by which the truth may lie under and above each estimate.
ERRORS = {
    "weights": (0.02, 0.02),
    "kv": (0.06, 0.01),
    "activation": (0.7, 2.0),
    "work": (0.4, 0.4),
    "engine": (0.5, 1.0),
    "graphs": (0.5, 1.0),
}
BLOCK = 16  # tokens of a KV block
_LARGE_DEVICE = 70 * GIB  # vLLM's own bound for its larger defaults
_GRAPHS_PER_LAYER = 15 << 20  # 0.21 GiB at 16 layers, 0.94 GiB at 64
_EXPERT_PADS = (
    256,
    128,
)  # hidden size and width of four-bit experts, rounded up for the kernel: 65.97 GiB of gpt-oss-120b
_EXPERT_WORK = 0.1  # of their bytes, as work space beside four-bit experts: 6 GiB of gpt-oss-120b, 4 GiB on each of two
_LOGIT_BYTES = 6  # a 16-bit logit and its 32-bit copy
_SORT_BYTES = 12  # a 32-bit logit sorted with 64-bit places: 1.74 GiB for 1,024 requests of 152,064 logits


@dataclass(frozen=True, slots=True)
class Setting:
    """A launch. None: what the engine takes by itself. dtype and kv_dtype are keys of DTYPES and KV_DTYPES."""

    gpu: Gpu
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_model_len: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    fraction: float = 0.9
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes on one GPU (the fullest one). problem: "" | "weights" | "no_kv" | "kv_too_small" | "beyond_fraction".

    work: beside the weights of four-bit experts; needed: KV of one longest request, of which `requests` fit at once.
    kv_low and kv_high: the KV cache when all estimates err to the bad and to the good side.
    """

    max_model_len: int
    total: int
    budget: int
    weights: int
    activation: int
    work: int
    engine: int
    graphs: int
    sampler: int
    kv_per_token: int
    needed: int
    kv_low: int
    kv_high: int

    @property
    def kv(self) -> int:
        """Bytes left for the KV cache; negative when the rest is too much already."""
        return self.budget - self.weights - self.activation - self.work - self.engine

    @property
    def requests(self) -> float:
        """Longest requests at once."""
        return max(0.0, self.kv / self.needed)

    @property
    def problem(self) -> str:
        """The first part that does not fit."""
        if self.weights + self.engine > self.budget:
            return "weights"
        if self.kv <= 0:
            return "no_kv"
        if self.kv < self.needed:
            return "kv_too_small"
        # The activations are free again when graphs are captured.
        return "beyond_fraction" if self.budget - self.activation + self.graphs + self.sampler > self.total else ""

    @property
    def certain(self) -> bool:
        """The verdict stays the same at both ends of the stated errors."""
        return (self.kv_low >= self.needed) == (self.kv_high >= self.needed)


def account(model: Model, setting: Setting) -> Account:
    """The account of one launch. Raises SizingError when the model cannot be shared or stored that way."""
    check(model, setting)
    total = setting.gpu.memory_bytes
    budget = int(total * setting.fraction)
    length = setting.max_model_len or model.max_positions
    seqs, tokens = _batch(setting)
    parts = {
        "weights": weight_bytes(model, setting),
        "activation": _activation(model, setting, seqs, tokens),
        "work": _expert_work(model, setting),
        "engine": _engine(setting),
    }
    layers = ceil(model.layers / setting.pipeline_parallel)
    return Account(
        max_model_len=length,
        total=total,
        budget=budget,
        **parts,
        graphs=layers * _GRAPHS_PER_LAYER,
        sampler=seqs * model.vocab * _SORT_BYTES,
        kv_per_token=layers * _layer_token(model, setting),
        needed=kv_of_request(model, setting, length, tokens),
        kv_low=budget - sum(int(part * (1 + ERRORS[name][1])) for name, part in parts.items()),
        kv_high=budget - sum(int(part * (1 - ERRORS[name][0])) for name, part in parts.items()),
    )


def check(model: Model, setting: Setting) -> None:
    """Raise SizingError for what no engine would start with."""
    if not 0 < setting.fraction <= 1:
        raise SizingError(f"the memory fraction {setting.fraction:g} is outside 0 to 1")
    if setting.tensor_parallel < 1 or model.heads % setting.tensor_parallel:
        raise SizingError(
            f"the {model.heads} attention heads of {model.name} cannot be shared by {setting.tensor_parallel} GPUs"
        )
    if not 1 <= setting.pipeline_parallel <= model.layers:
        raise SizingError(
            f"{model.layers} layers of {model.name} cannot be cut into {setting.pipeline_parallel} stages"
        )
    if (setting.max_model_len or model.max_positions) < 1:
        raise SizingError(f"{model.name} does not say how long a request may be; give max_model_len")
    _item(dtype_of(model, setting))
    kv_item(model, setting)
    if setting.quantization not in (None, "none", *QUANTIZATIONS):
        raise SizingError(f"quantization {setting.quantization!r} is not one of {', '.join(QUANTIZATIONS)}")


def weight_bytes(model: Model, setting: Setting) -> int:
    """Bytes of weights on the fullest GPU: its share of the layers, the larger of both ends, rotary tables."""
    quantization = quantization_in(model, setting)
    item = float(_item(dtype_of(model, setting)))
    packed = QUANTIZATIONS.get(quantization or "", item)
    plain = item if quantization in EXPERTS_ONLY else packed
    pads = _EXPERT_PADS if quantization in EXPERTS_ONLY else (1, 1)
    split = (model.layers * model.attention_split + model.dense) * plain + model.routed(*pads) * packed
    tp, pp = setting.tensor_parallel, setting.pipeline_parallel
    share = ceil(model.layers / pp) / model.layers
    ends = model.embedding + model.head if pp == 1 else max(model.embedding, model.head)
    rotary = model.max_positions * (model.latent.rope if model.latent else model.head_dim)
    return int(share * (split / tp + model.whole * plain) + (ends + model.vision) * item / tp + rotary * item)


def kv_item(model: Model, setting: Setting) -> int:
    """Bytes of a number in the KV cache. Raises SizingError."""
    name = setting.kv_dtype or dtype_of(model, setting)
    if name not in KV_DTYPES:
        raise SizingError(f"KV data type {name!r} is not one of {', '.join(KV_DTYPES)}")
    return KV_DTYPES[name]


def kv_of_request(model: Model, setting: Setting, length: int, batched_tokens: int) -> int:
    """KV bytes on one GPU of a request of `length` tokens; a windowed layer keeps its window and one step's tokens."""
    share = ceil(model.layers / setting.pipeline_parallel) / model.layers
    kept = min(length, model.window + batched_tokens) if model.windowed_layers else 0
    tokens = (model.layers - model.windowed_layers) * _blocks(length) + model.windowed_layers * _blocks(kept)
    return int(share * tokens * _layer_token(model, setting))


def _blocks(tokens: int) -> int:
    return ceil(tokens / BLOCK) * BLOCK


def _layer_token(model: Model, setting: Setting) -> int:
    return model.kv_values_per_layer(setting.tensor_parallel) * kv_item(model, setting)


def dtype_of(model: Model, setting: Setting) -> str:
    """The launch's data type; by itself an engine loads a float32 checkpoint in 16 bits."""
    own = "float16" if DTYPES.get(model.dtype) == 4 else model.dtype
    return setting.dtype or own


def quantization_in(model: Model, setting: Setting) -> str | None:
    """The launch's quantization, else the checkpoint's."""
    return model.quantization if setting.quantization is None else setting.quantization


def _item(dtype: str) -> int:
    if dtype not in DTYPES:
        raise SizingError(f"data type {dtype!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _batch(setting: Setting) -> tuple[int, int]:
    """(requests, tokens) of a step: vLLM's defaults for a server grow with the device."""
    large = setting.gpu.memory_bytes >= _LARGE_DEVICE
    tokens = setting.max_num_batched_tokens or (8192 if large else 2048)
    return setting.max_num_seqs or (1024 if large else 256), tokens


def _activation(model: Model, setting: Setting, seqs: int, tokens: int) -> int:
    """Peak of a full step: one MLP's in- and outputs with the residual stream, or the logits."""
    item = _item(dtype_of(model, setting))
    width = model.intermediate
    if model.experts is not None and not model.experts.dense_layers:
        width = max(model.experts.width, model.experts.shared_width)
    forward = tokens * (3 * width / setting.tensor_parallel + 4 * model.hidden) * item
    return int(max(forward, seqs * model.vocab * _LOGIT_BYTES))


def _expert_work(model: Model, setting: Setting) -> int:
    quantization = quantization_in(model, setting)
    if quantization not in EXPERTS_ONLY:
        return 0
    experts = model.routed(*_EXPERT_PADS) * QUANTIZATIONS[quantization]
    return int(_EXPERT_WORK * experts / setting.tensor_parallel / setting.pipeline_parallel)


def _engine(setting: Setting) -> int:
    """Device memory outside of torch: 0.14 GiB alone, 0.38 GiB with two GPUs, 0.61 GiB with sixteen."""
    ranks = setting.tensor_parallel * setting.pipeline_parallel
    return int((0.15 + (0.15 + 0.08 * log2(ranks) if ranks > 1 else 0)) * GIB)
