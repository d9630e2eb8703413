"""Steps that ask for too much at once, as a log of a served model shows them."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import older_than
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.model import Action

_STEP_GRAIN = 256  # tokens
_CHUNK = 8_192  # tokens of a step where none was set: what V1 engines take on large devices
_CHUNKING = ("vllm", "sglang", "lmdeploy", "trtllm")  # engines that take a smaller step whatever the longest prompt is
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
    known = present_of(advice, "max_num_batched_tokens")
    present = known.value
    if advice.system in (None, "llamacpp", "ollama") or (present is not None and present <= _STEP_GRAIN):
        return None
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    share = min(max(free / want, 0.125), 0.5) if want and free is not None else 0.5
    target = None if present is None else max(int(present * share) // _STEP_GRAIN * _STEP_GRAIN, _STEP_GRAIN)
    if present is None and advice.system in _CHUNKING:
        target = _CHUNK // 4
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say("activations grow with the tokens of a step", "激活随一步的 token 数增长") + known.note,
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
    known = present_of(advice, "max_num_seqs")
    present = known.value
    if not present or present < 8:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present),
        to_value=int(present) // 2,
        why=advice.say("activations and logits grow with the batch", "激活和 logits 随批量增长") + known.note,
        cost=advice.say(
            "new requests wait longer: time to first token is the loser", "新请求等待更久：受损的是首 token 时间"
        ),
    )
