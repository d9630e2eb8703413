"""Decode steps without CUDA graphs."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action

_LARGEST = 512  # requests; graphs of larger batches take memory and save little, the kernels are long by then


def use_cuda_graphs(advice: Advice) -> Action | None:
    """Switch eager mode off. None where it is not known to be on."""
    if advice.fact("enforce_eager") is not True:
        return None
    flag = knob_table().spelling(advice.system, "enforce_eager") or "enforce_eager"
    return advice.action(
        "use_cuda_graphs",
        from_value=True,
        to_value=False,
        flag=f"drop {flag}",
        why=advice.say(
            "a graph starts all kernels of a step at once; in eager mode the device waits for each launch",
            "图能一次启动一步的全部算子；eager 模式下设备要等每次启动",
        ),
        cost=advice.say(
            "some hundred MB to a few GB of device memory and a longer start: the KV pool is the loser",
            "占用数百 MB 到数 GB 显存并延长启动：受损的是 KV 池",
        ),
    )


def raise_cuda_graph_max_bs(advice: Advice) -> Action | None:
    """Graphs up to the batches that are seen. None where the captured size is not known, or holds them."""
    captured = advice.number("cuda_graph_max_bs")
    running = advice.read("max(max_over_time(llm_requests_running[$long]))")
    if captured is None or not running or running <= captured:
        return None
    target = min(_LARGEST, 1 << (int(running) - 1).bit_length())
    if target <= captured:
        return None
    return advice.action(
        "raise_cuda_graph_max_bs",
        from_value=int(captured),
        to_value=target,
        why=advice.say(
            f"batches of {running:.0f} run, graphs end at {captured:.0f}",
            f"批量达 {running:.0f}，而图只捕获到 {captured:.0f}",
        ),
        cost=advice.say(
            "device memory for the added graphs: the KV pool is the loser", "新增的图占用显存：受损的是 KV 池"
        ),
    )
