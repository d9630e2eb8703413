"""A training step that does not fit: smaller micro-batches at the same batch, fewer activations, states split up.

Each is worded as the trainer that ran spells it, from what its log, launch command or configuration states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from infradoc_rules.advise.base import Advice
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action
from infradoc_rules.units import size_text

_SPARE = 1.1  # over what was asked for: the step asks for more after it
_MOST = 8  # times smaller in one change
_SHORTEST = 512  # tokens; below it a cut sample is no sample
_STATIC = ("optimizer", "load")  # what asks there does not grow with the batch
_SPLIT = 0.5  # of what was asked for that must lie unused in the allocator for its setting to be worth a try
# Knobs of servers that a training run has as well; the others would be advised to what is not there.
_SHARED = frozenset({"model_checkpoint", "dtype", "quantization", "max_model_len"})
# (micro-batch, accumulation) per trainer.
_BATCHES: Mapping[str, str] = {
    "transformers": "--per_device_train_batch_size {batch} --gradient_accumulation_steps {steps}",
    "deepspeed": '"train_micro_batch_size_per_gpu": {batch}, "gradient_accumulation_steps": {steps}',
    "megatron": "--micro-batch-size {batch}",
    "axolotl": "micro_batch_size: {batch}, gradient_accumulation_steps: {steps}",
    "torchtune": "batch_size={batch} gradient_accumulation_steps={steps}",
    "lightning": "DataLoader(batch_size={batch}), Trainer(accumulate_grad_batches={steps})",
    "torch": "DataLoader(batch_size={batch}); (loss / {steps}).backward(); optimizer.step()  # every {steps}",
}
_RECOMPUTE: Mapping[str, str] = {
    "transformers": "--gradient_checkpointing true",
    "megatron": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "axolotl": "gradient_checkpointing: true",
    "torchtune": "enable_activation_checkpointing=True",
}
_RECOMPUTE_FSDP = "fsdp_activation_checkpointing: true"
_RECOMPUTE_CODE = "model.gradient_checkpointing_enable()"
_STATES: Mapping[str, str] = {
    "megatron": "--use-distributed-optimizer",
    "torchtune": "tune run --nproc_per_node {devices} full_finetune_distributed",
    "lightning": "Trainer(strategy='fsdp')",
    "transformers": '--deepspeed ds.json  # "zero_optimization": {{"stage": {stage}}}',
    "axolotl": "deepspeed: deepspeed_configs/zero{stage}.json",
    "torch": "fully_shard(model)  # FSDP2",
}
_STAGE = '"zero_optimization": {{"stage": {stage}}}'
_SMALL: Mapping[str, str] = {
    "transformers": "--optim paged_adamw_8bit",
    "axolotl": "optimizer: paged_adamw_8bit",
    "torchtune": "optimizer=bitsandbytes.optim.PagedAdamW8bit",
}
_SMALL_CODE = "bitsandbytes.optim.PagedAdamW8bit(model.parameters())"


def trains(advice: Advice) -> bool:
    """Whether the allocation was refused to a training step, or to a trainer that loaded its model."""
    return advice.fact("train.oom_place") is not None


def for_trainer(advice: Advice, action: Action) -> bool:
    """Whether a training run has the action's knob at all: memory shares, pools and slots are a server's."""
    if not trains(advice):
        return True
    knob = knob_table()[action.knob]
    splits = action.knob == "tensor_parallel_size" and _tool(advice) == "megatron"
    return not knob.spellings or action.knob in _SHARED or splits


def accumulate_smaller_batches(advice: Advice) -> Action | None:
    """A micro-batch that fits, and as many more of them. None where it is one already, or the optimizer asked."""
    batch, steps = advice.number("micro_batch_size"), _steps(advice)
    if not trains(advice) or _place(advice) in _STATIC or (batch is not None and batch < 2):
        return None
    target = None if batch is None else _fitting(advice, int(batch))
    times = None if batch is None or target is None else math.ceil(int(batch) / target)
    if steps is None and _tool(advice) == "transformers":
        steps = 1.0  # its default
    more = None if times is None or steps is None else int(steps) * times
    shape = _BATCHES[_tool(advice)]
    action = advice.action(
        "accumulate_smaller_batches",
        from_value=int(steps) if steps and more else None,
        to_value=more,
        flag=shape.format(batch=target or advice.say("<half>", "<减半>"), steps=more or _times(advice, times or 2)),
        why=_why_smaller(advice, target, more),
        cost=advice.say(
            "smaller kernels, so somewhat fewer samples a second: the length of the run is the loser",
            "算子变小，每秒样本略少：受损的是训练时长",
        ),
    )
    return action if target is None else replace(action, also=(("micro_batch_size", target),))


def _times(advice: Advice, times: int) -> str:
    return advice.say(f"<{times} times as many>", f"<{times} 倍>")


def _why_smaller(advice: Advice, target: int | None, steps: int | None) -> str:
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    en = "activations grow with the samples that are computed at once"
    zh = "激活随一次计算的样本数增长"
    if want and free is not None:
        en += f": {size_text(want)} were asked for and {size_text(free)} were free"
        zh += f"：请求 {size_text(want)}，空闲 {size_text(free)}"
    if _tool(advice) == "megatron":
        return advice.say(f"{en}; --global-batch-size stays", f"{zh}；--global-batch-size 不变")
    if target is None or steps is None:
        return advice.say(f"{en}; the product of the two stays", f"{zh}；两者的乘积不变")
    return advice.say(
        f"{en}; {target} x {steps} samples make the same batch on each device",
        f"{zh}；每个设备的批量仍为 {target} × {steps} 个样本",
    )


def _fitting(advice: Advice, batch: int) -> int:
    """Half of the micro-batch, or as often half as makes the piece that was asked for fit what was free."""
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    times = 2
    while want and free and times < _MOST and want * _SPARE / times > free:
        times *= 2
    return max(batch // times, 1)


def checkpoint_activations(advice: Advice) -> Action | None:
    """Activations computed again in the backward pass. None where they are, or the optimizer asked."""
    if not trains(advice) or advice.fact("gradient_checkpointing") is True or _place(advice) in _STATIC:
        return None
    tool, fsdp = _tool(advice), advice.fact("train.fsdp") is not None
    return advice.action(
        "checkpoint_activations",
        from_value=False if advice.fact("gradient_checkpointing") is False else None,
        to_value=True,
        flag=_RECOMPUTE_FSDP if fsdp and tool == "transformers" else _RECOMPUTE.get(tool, _RECOMPUTE_CODE),
        why=advice.say(
            "only the inputs of each layer are kept; the rest is computed again in the backward pass",
            "只保留每层的输入，其余在反向传播时重新计算",
        ),
        cost=advice.say(
            "about a third more computing: the length of the run is the loser",
            "计算量约增加三分之一：受损的是训练时长",
        ),
    )


def shorten_sequences(advice: Advice) -> Action | None:
    """Half the longest sample. None where its limit is not known or short, or the optimizer asked."""
    present, name = advice.number("train.length"), advice.fact("train.length_name")
    if not trains(advice) or not present or present < 2 * _SHORTEST or _place(advice) in _STATIC:
        return None
    target = int(present) // 2
    flag = f"--seq-length {target}" if name == "seq-length" else f"{name}: {target}"
    return advice.action(
        "shorten_sequences",
        from_value=int(present),
        to_value=target,
        flag=flag,
        why=advice.say(
            "the activations and logits of a sample grow with its length", "一个样本的激活和 logits 随其长度增长"
        ),
        cost=advice.say(
            "what stands behind the cut in long samples is the loser: the model never sees it",
            "受损的是长样本中被截掉的部分：模型看不到",
        ),
    )


def split_states(advice: Advice) -> Action | None:
    """Optimizer states, gradients or weights over the devices. None on one device, or where all is split already."""
    stage, devices = advice.number("zero_stage") or 0, _devices(advice)
    if not trains(advice) or stage >= 3 or (devices is not None and devices < 2):
        return None
    if devices is None and not stage:
        return None
    tool, target = _tool(advice), 2 if stage < 2 and _place(advice) == "optimizer" else 3
    shape = _STAGE if stage or tool == "deepspeed" else _STATES[tool]
    return advice.action(
        "split_states",
        from_value=int(stage) if stage else None,
        to_value=target,
        flag=shape.format(stage=target, devices=int(devices or 0)),
        why=advice.say(
            f"each of {devices:.0f} devices then holds its part alone"
            if devices
            else "each device then holds its part alone",
            f"{devices:.0f} 个设备各存自己的一份" if devices else "各设备只存自己的一份",
        ),
        cost=advice.say(
            "weights and gradients travel in every step: the links between the devices are the loser",
            "每步都要传输权重和梯度：受损的是设备间链路",
        ),
    )


def use_small_optimizer(advice: Advice) -> Action | None:
    """Optimizer states in 8 bits. None where adapters alone are trained, which have next to none, or they are."""
    trained, total = advice.number("train.trained_params"), advice.number("train.all_params")
    adapters = trained is not None and bool(total) and trained < 0.2 * (total or 0.0)
    named = str(advice.fact("train.optimizer") or "")
    if not trains(advice) or adapters or _tool(advice) == "megatron" or any(w in named for w in ("8bit", "adafactor")):
        return None
    if _place(advice) != "optimizer" and (advice.number("micro_batch_size") or 2) > 1:
        return None
    size = f" ({size_text(trained * 8)})" if trained else ""
    return advice.action(
        "use_small_optimizer",
        from_value=named or None,
        to_value="paged_adamw_8bit",
        flag=_SMALL.get(_tool(advice), _SMALL_CODE),
        why=advice.say(
            f"AdamW keeps 8 bytes for each trained weight{size}; in 8 bits it keeps 2",
            f"AdamW 为每个训练的权重保留 8 字节{size}；8 位时为 2 字节",
        ),
        cost=advice.say(
            "rounded states: runs at a high learning rate are the loser", "状态被舍入：受损的是高学习率的训练"
        ),
    )


def use_whole_segments(advice: Advice) -> Action | None:
    """The allocator's setting, where what it holds unused would do. None where next to nothing is held."""
    from infradoc_rules.advise.memory import set_expandable_segments

    held, want = advice.number("oom.reserved_unallocated_bytes"), advice.number("oom.want_bytes")
    if not trains(advice) or not held or not want or held < _SPLIT * want:
        return None
    return set_expandable_segments(advice)


def _tool(advice: Advice) -> str:
    return str(advice.fact("train.tool") or "torch")


def _place(advice: Advice) -> str:
    return str(advice.fact("train.oom_place") or "step")


def _steps(advice: Advice) -> float | None:
    return advice.number("train.accumulation")


def _devices(advice: Advice) -> float | None:
    each, nodes = advice.number("train.gpus_per_node"), advice.number("train.nodes") or 1
    return each * nodes if each else advice.number("train.devices")
