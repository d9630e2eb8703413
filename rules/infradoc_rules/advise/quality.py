"""Number formats and quantization: what this device can run, and what keeps the answers right."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

# Compute capability (x10) from which kernels of a method exist in serving engines; AWQ and GPTQ as GEMM, not Marlin.
_NEEDS = (("gptq", 60), ("awq", 75), ("int8", 75), ("marlin", 80), ("fp8", 89), ("nvfp4", 100))


def set_dtype(advice: Advice) -> Action | None:
    """A format with the range that the model needs; float32 where the device has no bfloat16."""
    if advice.fact("train.numbers") in ("broken", "skipping"):
        return None
    old = advice.fact("model.no_bfloat16") is not None
    target = "float32" if old else "bfloat16"
    return advice.action(
        "set_dtype",
        from_value="float16",
        to_value=target,
        why=advice.say(
            "float16 ends at 65504 and this model was trained with the range of bfloat16"
            + (", which this device lacks" if old else ""),
            "float16 的上限为 65504，而该模型按 bfloat16 的范围训练" + ("，此设备不支持 bfloat16" if old else ""),
        ),
        cost=advice.say(
            "weights and KV take twice the memory: concurrency is the loser"
            if old
            else "older cards are the losers: bfloat16 needs compute capability 8.0",
            "权重和 KV 占用加倍：并发数受损" if old else "显存不变；需要计算能力 8.0 及以上",
        ),
    )


def set_supported_dtype(advice: Advice) -> Action | None:
    """The one format that the refused method, or the device, can compute in."""
    if advice.fact("quant.problem") != "dtype" and advice.fact("quant.refused") != "bfloat16":
        return None
    return advice.action(
        "set_dtype",
        from_value="bfloat16",
        to_value="float16",
        why=advice.say(
            "the kernels of this method, or this device, have no bfloat16", "该方法的内核或此设备不支持 bfloat16"
        ),
        cost=advice.say(
            "answers may be the loser: models trained in bfloat16 can overflow in float16, check some",
            "以 bfloat16 训练的模型在 float16 下可能溢出：请检查若干回答",
        ),
    )


def set_quantization(advice: Advice) -> Action | None:
    """A method with kernels for this device; the checkpoint's own one where the flag names another."""
    problem, refused = advice.fact("quant.problem"), str(advice.fact("quant.refused") or "")
    if problem == "mismatch":
        own = str(advice.fact("quant.checkpoint_method"))
        return advice.action(
            "set_quantization",
            from_value=refused,
            to_value=own,
            why=advice.say(
                f"the checkpoint is quantized with {own}: name that, or leave the flag out",
                f"检查点以 {own} 量化：改为它或去掉该参数",
            ),
            cost=advice.say("nobody is the loser", "无人受损"),
        )
    if problem not in ("capability", "method") or refused == "bfloat16":
        return None
    target = _method_for(advice, refused)
    capability = advice.number("quant.capability_now")
    here = "" if capability is None else f" (sm{capability:.0f})"
    return advice.action(
        "set_quantization",
        from_value=refused or None,
        to_value=target,
        why=advice.say(
            f"{target} has kernels for this device{here}; it needs a checkpoint quantized that way",
            f"{target} 有适用于此设备{here}的内核；需要以该方法量化的检查点",
        ),
        cost=advice.say(
            "whoever provides the weights is the loser: they must be quantized again or fetched anew",
            "需重新量化或下载权重",
        ),
    )


def _method_for(advice: Advice, refused: str) -> str:
    """The best-known method that runs at this capability and is not the refused one."""
    now = advice.number("quant.capability_now") or 70.0
    able = [name for name, least in _NEEDS if least <= now and name not in refused and name not in ("marlin", "nvfp4")]
    return (
        able[-1]
        if "fp8" in refused and now >= 75 and able
        else "gptq"
        if "gptq" not in refused
        else (able or ["none"])[-1]
    )


def use_supported_checkpoint(advice: Advice) -> Action | None:
    """Other weights of the same model."""
    problem = advice.fact("quant.problem")
    if problem not in ("capability", "method", "shape") or advice.fact("quant.refused") == "bfloat16":
        return None
    shape = problem == "shape"
    return advice.action(
        "use_supported_checkpoint",
        to_value="unquantized, or another group size" if shape else "GPTQ or unquantized",
        why=advice.say(
            "the quantized blocks do not divide by the number of shards: other block size, or fewer shards"
            if shape
            else "the same model is usually published in a form that this device runs",
            "量化分块不能被分片数整除：换用其他分块大小，或减少分片" if shape else "同一模型通常有此设备可运行的版本",
        ),
        cost=advice.say(
            "concurrency is the loser: unquantized weights take up to four times the memory",
            "未量化权重的显存最多为四倍",
        ),
    )


def use_newer_gpu(advice: Advice) -> Action | None:
    """A device that has the instructions."""
    least = advice.number("quant.capability_min")
    if least is None:
        return None
    return advice.action(
        "use_newer_gpu",
        to_value=f"compute capability >= {least / 10:.1f}",
        why=advice.say(f"the method needs compute capability {least / 10:.1f}", f"该方法需要计算能力 {least / 10:.1f}"),
        cost=advice.say("the budget is the loser: another device", "预算：另一台设备"),
    )


def restore_kv_cache_dtype(advice: Advice) -> Action:
    """The KV cache in the model's own format."""
    now = advice.fact("kv_cache_dtype")
    return advice.action(
        "restore_kv_cache_dtype",
        from_value=now if now not in (None, "auto") else "fp8",
        to_value="auto",
        why=advice.say(
            "the checkpoint has no KV scales, so keys and values are cut to 8 bits with a scale of 1.0",
            "检查点没有 KV 缩放因子，键和值以 1.0 的比例被压缩到 8 位",
        ),
        cost=advice.say(
            "each token takes twice the KV memory: concurrency is the loser", "每个 token 的 KV 占用加倍：并发数受损"
        ),
    )


def calculate_kv_scales(advice: Advice) -> Action | None:
    """Keep 8 bits, with scales; engines that cannot compute them read a file or a checkpoint that has them."""
    if advice.system not in ("vllm", "sglang", "infradoc"):
        return None
    return advice.action(
        "calculate_kv_scales",
        to_value=None if advice.system == "sglang" else True,
        why=advice.say(
            "keeps the smaller cache, with scales that fit the values", "保留较小的缓存，并使用与数值相符的缩放因子"
        ),
        cost=advice.say(
            "prompts unlike the warm-up batch are the losers: compare scores again",
            "由预热批次得出的缩放因子可能不适合其他提示：请重新比较得分",
        ),
    )


def recalibrate(advice: Advice) -> Action:
    """Scales fitted on data like that which is served."""
    samples = advice.last("calibration", "samples")
    return advice.action(
        "recalibrate",
        to_value="in_domain",
        why=advice.say(
            "quantize again with samples like the served prompts (chat template, language, length)"
            + (f", more than the {samples:.0f} used" if samples else ", 512 or more"),
            "用与线上请求相近的样本（对话模板、语言、长度）重新量化"
            + (f"，多于已用的 {samples:.0f} 条" if samples else "，512 条以上"),
        ),
        cost=advice.say(
            "whoever quantizes is the loser: hours of one device, and new weights to roll out",
            "一台设备数小时，并需发布新权重",
        ),
    )


def use_finer_checkpoint(advice: Advice) -> Action:
    """More bits until the new calibration is there."""
    method = str(advice.fact("quant.used") or "")
    return advice.action(
        "use_finer_checkpoint",
        from_value=method if method.lower() not in ("", "none", "null") else None,
        to_value="8-bit or unquantized",
        why=advice.say(
            "decides the question at once: the same prompts on more bits", "可立即判断：以更高位数运行相同提示"
        ),
        cost=advice.say("concurrency is the loser: two to four times the weight memory", "权重显存为两到四倍"),
    )
