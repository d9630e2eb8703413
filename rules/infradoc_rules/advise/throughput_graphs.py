"""Decode steps without CUDA graphs, as a log of a served model shows them."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import Present
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.model import Action

_GRAPH_LARGEST = 512


def capture_larger_batches(advice: Advice) -> Action | None:
    """Graphs up to the batches that ran without one, in powers of two. None where graphs are switched off."""
    if advice.fact("enforce_eager") is True or not advice.number("serving.eager_lines"):
        return None
    known = present_of(advice, "cuda_graph_max_bs")
    present = known.value
    peak = advice.number("serving.running_max") or 1.0
    target = int(min(2 ** math.ceil(math.log2(max(peak, 2.0) * 1.25)), _GRAPH_LARGEST))
    if present is not None and target <= present:
        if not known.note:
            return None
        known, present = Present(None), None  # batches that ran without a graph say that less was captured
    return advice.action(
        "raise_cuda_graph_max_bs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            f"batches of up to {int(peak)} ran, larger than what was captured",
            f"批量最大到 {int(peak)}，超过已捕获的大小",
        )
        + known.note,
        cost=advice.say("each size takes device memory: the KV pool is the loser", "每种批量都占显存：受损的是 KV 池"),
    )


def use_graphs_again(advice: Advice) -> Action | None:
    """Graphs where they were switched off. None where they are on."""
    if advice.fact("enforce_eager") is not True:
        return None
    return advice.action(
        "use_cuda_graphs",
        from_value=True,
        to_value=False,
        why=advice.say("a graph starts all kernels of a step at once", "图能一次启动一步中的全部算子"),
        cost=advice.say(
            "1 to 3 GiB of device memory and a longer start: the KV pool is the loser",
            "占 1 到 3 GiB 显存且启动更慢：受损的是 KV 池",
        ),
    )


def lower_seqs_to_graphs(advice: Advice) -> Action | None:
    """No more requests at once than were captured. None where that is not known."""
    captured, present = advice.number("cuda_graph_max_bs"), advice.number("max_num_seqs")
    if not captured or not advice.number("serving.eager_lines") or (present is not None and present <= captured):
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=int(captured),
        why=advice.say(f"batches of up to {int(captured)} run with a graph", f"批量不超过 {int(captured)} 时使用图"),
        cost=advice.say("more requests wait: time to first token is the loser", "更多请求等待：受损的是首 token 时间"),
    )
