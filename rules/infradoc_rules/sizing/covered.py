"""Which kinds of models the account covers: decoders whose layers all keep keys and values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Names of `model_type`, without "_text" and "_vl": decoders that are served with this account's parts.
_DECODERS = frozenset(
    """
    apertus arcee aria baichuan bailing_moe chameleon cohere cohere2 command dbrx deepseek deepseek_v2 deepseek_v3
    deepseek_v32 deepseek_vl_v2 dots1 ernie4_5 ernie4_5_moe exaone exaone4 fuyu gemma gemma2 gemma3 glm glm4 glm4_moe
    glm4v glm4v_moe gpt_neox gpt_oss granite granitemoe hunyuan_v1_dense hunyuan_v1_moe idefics3 internlm internlm2
    internlm3 internvl internvl_chat kimi_k2 kimi llama llama4 llava llava_next llava_onevision mimo minicpm minicpm3
    minicpmv minimax_m2 mistral mistral3 mixtral mllama nemotron olmo olmo2 olmo3 olmoe orion ovis paligemma persimmon
    phi phi3 phi3_v phi4mm phimoe pixtral qwen qwen2 qwen2_5 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 smolvlm solar
    stablelm starcoder2 step1 voxtral xverse yi zephyr
    """.split()  # noqa: SIM905 (quoted one by one they fill a page)
)
_ENCODERS = frozenset(
    """
    albert bart bert bge camembert clip deberta deberta_v2 distilbert electra gte jina_bert modernbert mpnet mt5
    new nomic_bert roberta roformer siglip t5 umt5 vit wav2vec2 whisper xlm_roberta
    """.split()  # noqa: SIM905 (quoted one by one they fill a page)
)
_STATEFUL = frozenset(
    """
    bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 mamba mamba2 minimax_text_01 minimax_m1
    nemotron_h plamo2 qwen3_next recurrent_gemma rwkv rwkv5 rwkv6 rwkv7 zamba zamba2
    """.split()  # noqa: SIM905 (quoted one by one they fill a page)
)
_NO_DECODER = ("Model", "ForSequenceClassification", "ForMaskedLM", "ForTokenClassification", "ForCTC")
_DECODES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def not_covered(raw: Mapping[str, Any]) -> str | None:
    """What a config.json's model is, when the account does not cover it; None when it does or nothing tells.

    An account of such a model would be one of a Llama with the same numbers: its KV cache is another, or there is none.
    """
    kind = kind_of(raw)
    if kind in _STATEFUL:
        return f"{kind!r} has layers that keep a state instead of keys and values"
    if kind in _ENCODERS or raw.get("is_encoder_decoder") is True:
        return f"{kind[:40]!r} is an encoder"
    architecture = _architecture(raw)
    if not kind and "Mamba" in architecture:
        return f"{architecture!r} has layers that keep a state instead of keys and values"
    if architecture.endswith(_NO_DECODER) and not architecture.endswith(_DECODES) and kind not in _DECODERS:
        return f"{architecture!r} is no decoder"
    return None


def unknown(raw: Mapping[str, Any]) -> str | None:
    """The kind that a config.json names, when it is none that the account is known to cover."""
    parts = [raw, *(raw[key] for key in ("text_config", "llm_config") if isinstance(raw.get(key), dict))]
    if any(kind_of(part) in _DECODERS for part in parts):
        return None
    if kind := kind_of(raw):
        return kind[:60]
    architecture = _architecture(raw)
    stem = next((architecture.removesuffix(end) for end in _DECODES if architecture.endswith(end)), architecture)
    return None if not stem or stem.lower() in {name.replace("_", "") for name in _DECODERS} else architecture


def kind_of(raw: Mapping[str, Any]) -> str:
    """`model_type` without what marks its text part or its images; empty when it is not told."""
    kind = raw.get("model_type")
    name = kind.lower().replace("-", "_") if isinstance(kind, str) else ""
    for ending in ("_text_model", "_text", "_vl_moe", "_vl", "_omni"):
        if name.endswith(ending):
            name = name.removesuffix(ending) + ("_moe" if ending == "_vl_moe" else "")
    return name


def _architecture(raw: Mapping[str, Any]) -> str:
    found = raw.get("architectures")
    first = found[0] if isinstance(found, list) and found else ""
    return first[:80] if isinstance(first, str) else ""
