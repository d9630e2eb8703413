"""What a log of a served model says on memory: steps that are too large, pools that are too full, memory that leaks."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice, mebibytes
from infradoc_rules.advise.device import older_than
from infradoc_rules.model import Action

_STEP_GRAIN = 256  # tokens
_CHUNK = 8_192  # tokens of a step where none was set: what V1 engines take on large devices
_LEN_GRAIN = 1_024


def drop_prompt_logprobs(advice: Advice) -> Action | None:
    """No log-probabilities of prompts. None where the traceback does not go through them."""
    if advice.fact("oom.logprobs") is not True:
        return None
    return advice.action(
        "drop_prompt_logprobs",
        why=advice.say(
            "log-probabilities of a prompt need its length times the vocabulary at once, outside the measured peak",
            "提示的对数概率一次需要“长度 × 词表”的内存，不在测得的峰值之内",
        ),
        cost=advice.say("callers who need these values are the losers", "受损的是需要这些值的调用方"),
    )


def process_images_on_cpu(advice: Advice) -> Action | None:
    """Images prepared on the host. None where the traceback is not in their preparation, or the engine has no flag."""
    if advice.fact("oom.preprocessing") is not True or advice.system not in ("sglang", "vllm"):
        return None
    return advice.action(
        "disable_fast_image_processor",
        why=advice.say(
            "the fast image processor puts pixels onto the device that also serves the model",
            "快速图像处理器把像素放到同时运行模型的设备上",
        ),
        cost=advice.say(
            "images are prepared more slowly: time to first token of image requests is the loser",
            "图像预处理变慢：受损的是含图请求的首 token 时间",
        ),
    )


def send_smaller_batches(advice: Advice) -> Action | None:
    """A client that talks past the router's limits sends less at once. None for other clients."""
    if advice.fact("client.direct") is not True:
        return None
    return advice.action(
        "lower_client_concurrency",
        why=advice.say(
            "this client talks to the model server directly, so the limits checked at warm-up do not bound it",
            "该客户端直接访问模型服务，预热时检查过的上限对它不起作用",
        ),
        cost=advice.say("the measured throughput is the loser", "受损的是所测的吞吐"),
    )


def split_long_prompts(advice: Advice) -> Action | None:
    """Chunked prefill where the start tries the longest prompt in one step (vLLM V0). None elsewhere."""
    if advice.system != "vllm" or advice.fact("oom.at_start") is not True:
        return None
    if advice.fact("chunked_prefill") is True or not older_than(advice, 0, 8):
        return None
    return advice.action(
        "enable_chunked_prefill",
        why=advice.say(
            "a prompt is then computed in parts: the step tried at start no longer grows with max_model_len",
            "提示分块计算：启动时试运行的一步不再随 max_model_len 增长",
        ),
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def lower_step_for_peak(advice: Advice) -> Action | None:
    """A step budget in proportion to what was free; half of the present one where that is not known."""
    present = advice.number("max_num_batched_tokens")
    if advice.system in (None, "llamacpp", "ollama") or (present is not None and present <= _STEP_GRAIN):
        return None
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    share = min(max(free / want, 0.125), 0.5) if want and free is not None else 0.5
    target = None if present is None else max(int(present * share) // _STEP_GRAIN * _STEP_GRAIN, _STEP_GRAIN)
    if advice.system == "vllm" and present is None:
        target = _CHUNK // 4
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say("activations grow with the tokens of a step", "激活随一步的 token 数增长"),
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def lower_len_for_peak(advice: Advice) -> Action | None:
    """The longest request whose step fits what was free. None where a start did not fail by it."""
    present = advice.number("max_model_len")
    if advice.fact("oom.at_start") is not True or not present or advice.system in ("tgi", "trtllm"):
        return None
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    share = min(0.5 * free / want, 0.5) if want and free is not None else 0.5
    target = max(int(present * share) // _LEN_GRAIN * _LEN_GRAIN, _LEN_GRAIN)
    return advice.action(
        "lower_max_model_len",
        from_value=int(present),
        to_value=min(target, int(present) // 2),
        why=advice.say("the start tries a request of this length in one step", "启动时会以一步试运行这样长度的请求"),
        cost=advice.say(
            "longer requests are refused: their callers are the losers", "更长的请求会被拒绝：受损的是其调用方"
        ),
    )


def lower_scheduler_steps(advice: Advice) -> Action | None:
    """Half the decode steps per scheduling decision (vLLM V0). None where it is one or not set."""
    present = advice.number("num_scheduler_steps")
    if not present or present <= 1:
        return None
    return advice.action(
        "lower_num_scheduler_steps",
        from_value=int(present),
        to_value=max(int(present) // 2, 1),
        why=advice.say(
            "tensors are kept alive over all steps of one decision, which the start-up profile does not see",
            "一次调度的所有步都保留其张量，而启动时的测量看不到这部分",
        ),
        cost=advice.say("more scheduling work: throughput is the loser", "调度开销增加：受损的是吞吐"),
    )


def lower_seqs_for_room(advice: Advice) -> Action | None:
    """Half the requests at once. None where the limit is not known or small."""
    present = advice.number("max_num_seqs")
    if not present or present < 8:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present),
        to_value=int(present) // 2,
        why=advice.say("activations and logits grow with the batch", "激活和 logits 随批量增长"),
        cost=advice.say(
            "new requests wait longer: time to first token is the loser", "新请求等待更久：受损的是首 token 时间"
        ),
    )


def disable_mm_cache(advice: Advice) -> Action | None:
    """No cache of processed images. None where the load has none, or it is off."""
    images = advice.fact("growth.multimodal") is True
    if advice.system != "vllm" or not images or advice.fact("mm_preprocessor_cache") is False:
        return None
    flag = "--disable-mm-preprocessor-cache" if older_than(advice, 0, 11) else "--mm-processor-cache-gb 0"
    return advice.action(
        "disable_mm_preprocessor_cache",
        flag=flag,
        why=advice.say(
            "processed images are kept in host memory, counted by items and not by bytes",
            "处理后的图像保留在主机内存中，只按个数而不按字节设限",
        ),
        cost=advice.say(
            "repeated images are processed again: their time to first token is the loser",
            "重复图像要重新处理：受损的是其首 token 时间",
        ),
    )


def lower_seqs_to_pool(advice: Advice) -> Action | None:
    """As many requests at once as the pool held without taking blocks away. None where a handful fills it."""
    if advice.fact("serving.pool_bound") is True:
        return None
    present = advice.number("max_num_seqs") or advice.number("serving.limit")
    running, usage = advice.number("serving.running_median"), advice.number("serving.kv_median")
    target = None
    if running:
        share = 0.9 if not usage or usage >= 0.9 else 0.9 / max(usage, 0.5)
        target = max(1, math.floor(running * min(share, 0.9)))
    if present is not None and target is not None and target >= present:
        target = max(1, int(present) - 1)
    if target is None and present is None and advice.system is None:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            f"about {target} requests keep their blocks to the end" if target else "fewer requests keep their blocks",
            f"约 {target} 个请求能一直保住自己的块" if target else "更少的请求才能保住自己的块",
        ),
        cost=advice.say(
            "new requests wait longer: time to first token is the loser", "新请求等待更久：受损的是首 token 时间"
        ),
    )


def raise_watermark(advice: Advice) -> Action | None:
    """A reserve of free blocks at admission. None for engines without the knob."""
    present = advice.number("watermark") or 0.0
    if present >= 0.05 or advice.system != "vllm":
        return None
    return advice.action(
        "raise_watermark",
        from_value=present,
        to_value=0.05,
        why=advice.say("running requests then have blocks to grow into", "运行中的请求便有块可供增长"),
        cost=advice.say(
            "a twentieth of the pool stays empty: concurrency is the loser", "池的二十分之一留空：受损的是并发"
        ),
    )


def reserve_whole_prompts(advice: Advice) -> Action | None:
    """Prompts admitted only as a whole. None where prompts are short, or for engines without the knob."""
    if advice.system != "vllm" or advice.fact("serving.recomputes") is not True:
        return None
    return advice.action(
        "reserve_full_prompts",
        why=advice.say(
            "a prompt whose first chunk fits is admitted now, and thrown out half-way when the pool is full",
            "目前只要首块放得下就接纳提示，池满时又在中途被赶出",
        ),
        cost=advice.say(
            "long prompts wait for room: their time to first token is the loser",
            "长提示要等空间：受损的是其首 token 时间",
        ),
    )


def raise_conservativeness(advice: Advice) -> Action | None:
    """Admission that counts on longer answers (SGLang)."""
    if advice.system != "sglang":
        return None
    present = advice.number("schedule_conservativeness") or 1.0
    return advice.action(
        "raise_schedule_conservativeness",
        from_value=present,
        to_value=round(present + 0.3, 2),
        why=advice.say("admission then sets aside more for answers still to come", "接纳时会为将要生成的内容多留空间"),
        cost=advice.say("fewer requests run at once: concurrency is the loser", "同时运行的请求变少：受损的是并发"),
    )


def lower_client_concurrency(advice: Advice) -> Action | None:
    """As many requests in flight as the pool holds. None where that is not known."""
    running, waiting = advice.number("serving.running_median"), advice.number("serving.waiting_median")
    if not running or not waiting:
        return None
    return advice.action(
        "lower_client_concurrency",
        from_value=int(running + waiting),
        to_value=max(int(running * 0.9), 1),
        why=advice.say(
            f"{int(running + waiting)} requests are in flight and the pool holds about {int(running)}",
            f"在途请求 {int(running + waiting)} 个，而池约容纳 {int(running)} 个",
        ),
        cost=advice.say("the callers that are held back are the losers", "受损的是被限制的调用方"),
    )


def lower_block_to_lengths(advice: Advice) -> Action | None:
    """A block size that is at most a fourth of a request, in powers of two. None where it is small already."""
    present, length = advice.number("block_size"), advice.number("serving.length_mean")
    if not present or present <= 16 or not length:
        return None
    target = int(max(16, min(2 ** int(math.log2(max(length / 4, 16))), present / 2)))
    return advice.action(
        "lower_block_size",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            f"requests hold about {int(length)} tokens: the last block of each is mostly empty",
            f"请求约 {int(length)} 个 token：每个请求的末块大半空着",
        ),
        cost=advice.say(
            "longer block tables; kernels that want large blocks are the loser", "块表变长；受损的是偏好大块的算子"
        ),
    )


def recompute_now(advice: Advice) -> Action | None:
    """Preempted requests are computed again instead of moved (vLLM V0). None elsewhere."""
    if advice.system != "vllm" or advice.fact("preemption_mode") == "recompute":
        return None
    return advice.action(
        "recompute_instead_of_swap",
        to_value="recompute",
        why=advice.say(
            "computing a short prompt again is quicker than moving its blocks twice", "重算短提示比来回搬块更快"
        ),
        cost=advice.say("long prompts are the loser: they are computed twice", "受损的是长提示：要计算两遍"),
    )


def add_host_ram(advice: Advice) -> Action | None:
    """Memory for what lies on disk. None where the host does not swap."""
    used, size = advice.number("host.swap_used_bytes"), advice.number("host.memory_bytes")
    if not used or used < 1 << 28:
        return None
    return advice.action(
        "raise_host_ram",
        from_value=int(size) if size else None,
        to_value=int(size + 1.15 * used) if size else None,
        why=advice.say(
            f"{mebibytes(used)} of programs' memory lie on disk", f"有 {mebibytes(used)} 的程序内存被换到磁盘"
        ),
        cost=advice.say("the hardware; the budget is the loser", "硬件成本：受损的是预算"),
    )
