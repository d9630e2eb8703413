"""The parts of a GPU's memory, each by itself: weights, activation peak, engine, CUDA graphs, KV cache. Pure."""

from __future__ import annotations

from math import ceil, log2

from infradoc_rules.sizing.dtypes import EXPERTS_ONLY, QUANTIZATIONS
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.setting import Setting, dtype_of, item_of, kv_item, quantization_in
from infradoc_rules.units import GIB

BLOCK = 16  # tokens of a KV block
_GRAPH_LAYER = 22 << 20  # a layer's CUDA graphs: 0.2 to 0.9 GiB at 32 layers, 0.9 to 1.6 at 64
_GRAPH_MIXTURE_LAYER = 38 << 20  # with experts: 1.03 GiB at 36 layers, 1.92 at 48, 3.45 at 94
_EXPERT_PADS = (256, 128)  # hidden size and width of mxfp4 experts, rounded up for the kernel: 65.97 GiB of 120b
_LINKED = 1.5e12  # bytes a second: devices of this class come with links between them
_UNLINKED = 0.2  # GiB outside of torch on each of several without: 0.20 to 0.38


def weight_bytes(model: Model, setting: Setting) -> int:
    """Bytes of weights on the fullest GPU: its share of the layers, the larger of both ends, rotary tables."""
    quantization = quantization_in(model, setting)
    item = float(item_of(dtype_of(model, setting)))
    packed = QUANTIZATIONS.get(quantization or "", item)
    plain = item if quantization in EXPERTS_ONLY else packed
    pads = _EXPERT_PADS if quantization in EXPERTS_ONLY else (1, 1)
    split = (model.layers * model.attention_split + model.dense) * plain + model.routed(*pads) * packed
    tp, pp = setting.tensor_parallel, setting.pipeline_parallel
    share = ceil(model.layers / pp) / model.layers
    ends = model.embedding + model.head if pp == 1 else max(model.embedding, model.head)
    rotary = model.max_positions * (model.latent.rope if model.latent else model.head_dim)
    return int(share * (split / tp + model.whole * plain) + (ends + model.vision) * item / tp + rotary * item)


def activation_bytes(model: Model, setting: Setting) -> int:
    """The peak that is measured at start: a full step through the widest layer, or the logits of the largest batch."""
    return max(step_bytes(model, setting), logit_bytes(model, setting))


def step_bytes(model: Model, setting: Setting) -> int:
    """A full step at its widest: the MLP's two inputs and their product, and three vectors of the residual stream.

    2.06 GiB for 20,000 tokens of Llama-3.1-8B and 2.99 for 29,000, as printed.
    """
    tokens = setting.batch(model)[1]
    inner = 3 * model.intermediate / setting.tensor_parallel
    if model.experts is not None:
        routed = model.experts.active * (3 * model.experts.width / setting.tensor_parallel + model.hidden)
        inner = max(inner if model.experts.dense_layers else 0.0, routed)
    return int(tokens * (inner + 3 * model.hidden) * item_of(dtype_of(model, setting)))


def logit_bytes(model: Model, setting: Setting) -> int:
    """Logits and what sampling makes of them, for as many requests as may run; on each GPU of the last stage.

    0 with several stages: their fullest GPU is another one.
    """
    if setting.pipeline_parallel > 1:
        return 0
    return int(setting.batch(model)[0] * model.vocab * setting.behaviour.logit_bytes)


def engine_bytes(setting: Setting) -> int:
    """Device memory outside of torch: buffers of NCCL and of the reductions between GPUs, kernels' code."""
    knows = setting.behaviour
    if setting.tensor_parallel == 1:
        return int(knows.alone * GIB)
    if setting.gpu.bandwidth >= _LINKED:
        return int((knows.hopper if (setting.gpu.capability or 0.0) >= 9.0 else knows.linked) * GIB)
    return int((_UNLINKED + 0.03 * log2(setting.ranks)) * GIB)


def graph_bytes(model: Model, setting: Setting) -> int:
    """CUDA graphs of all batch sizes; 0 with eager execution."""
    if setting.eager:
        return 0
    layers = ceil(model.layers / setting.pipeline_parallel)
    return layers * (_GRAPH_LAYER if model.experts is None else _GRAPH_MIXTURE_LAYER)


def kv_of_token(model: Model, setting: Setting) -> int:
    """KV bytes of one token on one GPU."""
    return ceil(model.layers / setting.pipeline_parallel) * _layer_token(model, setting)


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
