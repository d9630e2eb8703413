"""Starts that break off at a limit that is no matter of device memory: the model's length, a kernel's shared memory."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import older_than, version
from infradoc_rules.model import Action

_OTHER_BACKEND = {"vllm": "FLASHINFER", "sglang": "flashinfer", "lmdeploy": "turbomind"}


def lower_len_to_model(advice: Advice) -> Action | None:
    """What the model was made for."""
    asked, known = (advice.last("length_above_model", name) for name in ("asked_tokens", "model_tokens"))
    if known is None:
        return None
    return advice.action(
        "lower_max_model_len",
        from_value=int(asked) if asked else None,
        to_value=int(known),
        why=advice.say(f"the model's own limit is {int(known):,} tokens", f"模型自身的上限是 {int(known):,} 个 token"),
        cost=advice.say(
            "requests longer than this are refused: they are the losers", "更长的请求会被拒绝：受损的是长请求"
        ),
    )


def set_rope_scaling(advice: Advice) -> Action | None:
    """Scaled positions, where the model's makers allow them. None where they are set already."""
    asked, known = (advice.last("length_above_model", name) for name in ("asked_tokens", "model_tokens"))
    if advice.fact("rope_scaling") is not None or not asked or not known or asked > 8 * known:
        return None
    factor = math.ceil(asked / known * 2) / 2
    return advice.action(
        "set_rope_scaling",
        to_value=f"yarn, factor {factor:g}",
        flag=_rope_flag(advice, factor, int(known)),
        why=advice.say(
            "only if the model's makers say that it takes such scaling; then positions stay in the trained range",
            "仅当模型作者说明支持这种缩放时使用；这样位置仍在训练范围内",
        ),
        cost=advice.say("short prompts are the losers: answers may get somewhat worse", "受损的是短提示：回答可能略差"),
    )


def _rope_flag(advice: Advice, factor: float, model: int) -> str | None:
    inner = f'"rope_type": "yarn", "factor": {factor:g}, "original_max_position_embeddings": {model}'
    if advice.system == "vllm":
        if older_than(advice, 0, 8, 3) or version(advice) is None:
            return f"--rope-scaling '{{{inner}}}'"
        return f"--hf-overrides '{{\"rope_scaling\": {{{inner}}}}}'"
    if advice.system == "sglang":
        return f"--json-model-override-args '{{\"rope_scaling\": {{{inner}}}}}'"
    return (
        f"--rope-scaling yarn --rope-scale {factor:g} --yarn-orig-ctx {model}" if advice.system == "llamacpp" else None
    )


def upgrade_for_length(advice: Advice) -> Action | None:
    """vLLM before 0.4.0 overlooks a model_max_length above max_position_embeddings (pull request 3727)."""
    if advice.system != "vllm" or not older_than(advice, 0, 4, 0):
        return None
    return advice.action(
        "upgrade_engine",
        from_value=advice.fact("target.version"),
        to_value=">=0.4.0",
        flag="vllm>=0.4.0",
        why=advice.say(
            "before 0.4.0 a longer model_max_length in the model's config.json is overlooked",
            "0.4.0 之前的版本会忽略模型 config.json 中更大的 model_max_length",
        ),
        cost=advice.say(
            "flags and defaults change between versions: whoever has to check them is the loser",
            "不同版本的参数和默认值有变化：运维方需要核对",
        ),
    )


def change_attention_backend(advice: Advice) -> Action | None:
    """Other kernels. None where the refused one is not known to be of attention: see `lower_kernel_stages`."""
    if advice.fact("kernel.attention") is False:
        return None
    other = _OTHER_BACKEND.get(advice.system or "")
    # vLLM took its backend from the environment until the flag came.
    by_name = f"VLLM_ATTENTION_BACKEND={other}" if advice.system == "vllm" and older_than(advice, 0, 12, 0) else None
    return advice.action(
        "change_attention_backend",
        from_value=advice.fact("attention_backend"),
        to_value=other,
        flag=by_name,
        why=advice.say(
            "another backend's kernels are built for less on-chip shared memory",
            "其他后端的内核所需的片上共享内存更少",
        ),
        cost=advice.say("speed may differ: callers are the losers where it is lower", "速度可能不同：受影响的是调用方"),
    )


def lower_kernel_stages(advice: Advice) -> Action:
    """Fewer stages or smaller tiles in the kernel that was refused."""
    needed, limit = (advice.last("kernel_resources", name) for name in ("needed_bytes", "limit_bytes"))
    return advice.action(
        "lower_kernel_stages",
        why=advice.say(
            f"the kernel asks for {int(needed):,} bytes of on-chip shared memory, this GPU has {int(limit):,}"
            if needed and limit
            else "the kernel asks for more on-chip shared memory than this GPU has",
            f"内核要 {int(needed):,} 字节片上共享内存，此 GPU 只有 {int(limit):,} 字节"
            if needed and limit
            else "内核要求的片上共享内存超过此 GPU 所有",
        ),
        cost=advice.say(
            "a change of the kernel's code or of its tuned configuration; the kernel's speed is the loser",
            "需要改内核代码或其调优配置；受损的是该内核的速度",
        ),
    )
