"""Training runs: late ranks, gradients that travel too often, losses that are added up, numbers that overflow."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_SPARE = 2.0  # times the expected wait
_LEAST_SECONDS = 3600


def _cause(advice: Advice) -> str:
    return str(advice.fact("collective.cause"))


def tokenize_first(advice: Advice) -> Action | None:
    """Prepare the data before the launch, where that is what the late rank did."""
    if _cause(advice) != "data":
        return None
    rank = advice.number("collective.late_rank")
    en, zh = ("one rank", "某个 rank") if rank is None else (f"rank {rank:.0f}", f"rank {rank:.0f}")
    return advice.action(
        "tokenize_first",
        to_value=True,
        why=advice.say(
            f"{en} was still preparing the data set while the others waited at a barrier",
            f"{zh} 仍在处理数据集，其他 rank 在屏障处等待",
        ),
        cost=advice.say("the disk is the loser: it holds the prepared data", "预处理后的数据占用磁盘"),
    )


def raise_ddp_timeout(advice: Advice) -> Action | None:
    """A limit above what the late rank needs, computed from its progress bar; None where waiting would not help."""
    if _cause(advice) in ("error", "desync", "network"):
        return None
    limit = advice.last("nccl_timeout", "timeout_seconds")
    wanted = _needed(advice)
    target = max(_LEAST_SECONDS, int(2 * limit) if limit else 0, wanted)
    target = -(-target // 600) * 600
    return advice.action(
        "raise_ddp_timeout",
        from_value=int(limit) if limit else None,
        to_value=target,
        flag=f"--ddp_timeout {target} (init_process_group(timeout=timedelta(seconds={target})))",
        why=advice.say(
            f"the wait ended after {limit:.0f} s" if limit else "the default limit is 600 s",
            f"等待在 {limit:.0f} 秒后终止" if limit else "默认上限为 600 秒",
        ),
        cost=advice.say(
            "a rank that really hangs is noticed that much later: the paid GPU hours are the loser",
            "真正挂起的 rank 会更晚被发现：浪费的是 GPU 时间",
        ),
    )


def _needed(advice: Advice) -> int:
    """Seconds that the data needs at the rate of its progress bar, with spare; 0 when it does not say."""
    for event in reversed(advice.frame.events):
        rate, total = event.fields.get("rate"), event.fields.get("total")
        if event.name == "dataset_progress" and isinstance(rate, float) and isinstance(total, int) and rate > 0:
            return int(_SPARE * total / rate)
    return 0


def fix_late_rank(advice: Advice) -> Action | None:
    """Where one rank failed, took another branch or lost its network: start the run again after the cause is gone."""
    texts = {
        "error": (
            "one rank ended in an error of its own: mend that, the time-out is its echo",
            "某个 rank 因自身错误退出：先修复该错误，超时只是其后果",
        ),
        "desync": (
            "ranks wait in different collectives: let all take the same branches (data length, conditional losses)",
            "各 rank 在等待不同的集合操作：确保所有 rank 走相同分支（数据长度、条件损失）",
        ),
        "network": (
            "the network between hosts failed first: check the link and its counters, then resume from the checkpoint",
            "主机间网络先出错：检查链路及其计数器，然后从检查点恢复",
        ),
    }
    if _cause(advice) not in texts:
        return None
    return advice.action(
        "restart_engine",
        why=advice.say(*texts[_cause(advice)]),
        cost=advice.say("the run is the loser: the steps since the last checkpoint are gone", "丢失上次检查点之后的步"),
    )


def skip_gradient_sync(advice: Advice) -> Action:
    """Reduce gradients at the last micro-step only."""
    steps = advice.number("train.accumulation")
    times = "" if not steps else f"{steps:.0f}"
    return advice.action(
        "skip_gradient_sync",
        to_value=True,
        flag=advice.say(
            "no_sync() (DDP, FSDP1); set_requires_gradient_sync(False) or set_requires_all_reduce(False) (FSDP2)",
            "no_sync()（DDP、FSDP1）；set_requires_gradient_sync(False) 或 set_requires_all_reduce(False)（FSDP2）",
        ),
        why=advice.say(
            f"gradients are reduced {times or 'several'} times for each optimizer step, once is enough",
            f"每个优化步归约了 {times or '多'} 次梯度，一次就够",
        ),
        cost=advice.say(
            "each rank keeps unreduced gradients between micro-steps: device memory is the loser",
            "微步之间每个 rank 都要保留未归约的梯度：占用更多显存",
        ),
    )


def upgrade_trainer(advice: Advice) -> Action:
    """A framework version that divides the loss by the accumulation for this model."""
    now = advice.fact("train.llamafactory") or advice.fact("train.transformers")
    return advice.action(
        "upgrade_trainer",
        from_value=now,
        flag="pip install -U "
        + ("llamafactory " if advice.fact("train.llamafactory") else "")
        + "transformers accelerate",
        why=advice.say(
            "models that ignore num_items_in_batch get micro-batch means added up; later versions divide them "
            "(model_accepts_loss_kwargs = False)",
            "忽略 num_items_in_batch 的模型会把各微批的平均损失相加；较新版本会相除"
            "（model_accepts_loss_kwargs = False）",
        ),
        cost=advice.say(
            "comparisons are the loser: the learning rate of earlier runs acted differently",
            "与之前的训练不再可比：当时学习率的实际作用不同",
        ),
    )


def lower_accumulation(advice: Advice) -> Action | None:
    """Fewer micro-steps until the fixed version is in place."""
    now = advice.number("train.accumulation")
    if now is not None and now <= 1:
        return None
    return advice.action(
        "lower_accumulation",
        from_value=None if now is None else int(now),
        to_value=1,
        flag="--gradient_accumulation_steps 1",
        why=advice.say(
            "the error grows with the number of micro-steps; a larger micro-batch keeps the batch of a step",
            "误差随微步数增大；改用更大的微批可保持每步的批量",
        ),
        cost=advice.say("device memory is the loser: a larger micro-batch takes more of it", "更大的微批占用更多显存"),
    )


def train_in_bfloat(advice: Advice) -> Action | None:
    """Only where training is what overflows; bfloat16 has the exponent of float32."""
    if advice.fact("train.numbers") not in ("broken", "skipping"):
        return None
    return advice.action(
        "train_in_bfloat",
        to_value=True,
        flag="--bf16 true (drop --fp16)",
        why=advice.say(
            "float16 ends at 65504 and this model's activations go beyond it; bfloat16 has the range of float32",
            "float16 的上限为 65504，而该模型的激活超出此值；bfloat16 的范围与 float32 相同",
        ),
        cost=advice.say(
            "older cards are the losers: bfloat16 needs capability 8.0; V100 and T4 have float32, at twice the memory",
            "需要计算能力 8.0 及以上的 GPU；V100 或 T4 只能用 float32，显存加倍",
        ),
    )
