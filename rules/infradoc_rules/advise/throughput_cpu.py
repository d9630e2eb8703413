"""A device that waits for the CPU, as a log and the tools of the host show it."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_WAITING = 16.0  # runnable threads
_NO_IDLE = 0.05


def raise_front_ends(advice: Advice) -> Action | None:
    """More front-end processes, where the engine has the knob (vLLM)."""
    if advice.system != "vllm":
        return None
    present = advice.number("api_server_count") or 1
    engines = advice.number("data_parallel_size") or 1
    return advice.action(
        "raise_api_server_count",
        from_value=int(present),
        to_value=int(max(present + 1, min(2 * engines, 4))),
        why=advice.say("one front-end process is at the limit of its core", "单个前端进程已占满一核"),
        cost=advice.say(
            "what is counted per process is then counted apiece: dashboards are the loser",
            "按进程统计的指标将各算各的：受损的是监控面板",
        ),
    )


def add_tokenizer_workers(advice: Advice) -> Action | None:
    """More text workers beside the one that is full (SGLang). None elsewhere."""
    if advice.system != "sglang":
        return None
    present = advice.number("tokenizer_workers") or 1
    return advice.action(
        "set_tokenizer_workers",
        from_value=int(present),
        to_value=int(max(4, 2 * present)),
        why=advice.say("one process handles all requests and streams", "单个进程处理所有请求和流"),
        cost=advice.say(
            "a core and some memory a worker: neighbours are the loser", "每个进程占一核和内存：受损的是邻居"
        ),
    )


def cap_omp_threads(advice: Advice) -> Action | None:
    """As many compute threads as the quota has whole cores. None where the quota is not known, or they are capped."""
    quota = advice.number("cpu.limit") or (advice.number("cpu.visible") if advice.fact("cpu.lockstep") else None)
    present = advice.number("omp_num_threads") or advice.number("cpu.visible")
    if not quota or (present is not None and present <= quota):
        return None
    target = max(1, math.floor(quota))
    flags = {"llamacpp": f"--threads {target}", "ollama": f"num_thread {target}"}
    return advice.action(
        "set_omp_num_threads",
        from_value=int(present) if present else None,
        to_value=target,
        flag=flags.get(advice.system or "", f"OMP_NUM_THREADS={target}"),
        why=advice.say(
            f"compute threads sized for the whole node share {quota:g} cores and wait for each other",
            f"按整个节点设定的计算线程共用 {quota:g} 核，互相等待",
        ),
        cost=advice.say(
            "none while the quota stays; after a larger quota the setting is the loser, it has to be raised again",
            "配额不变则无代价；若日后提高配额，受损的是此设置：需要再调高",
        ),
    )


def use_more_threads(advice: Advice) -> Action | None:
    """As many compute threads as the library counted before it was cut down to one. None elsewhere."""
    spare = advice.number("cpu.threads_left_out")
    if not spare:
        return None
    target = int(spare) + 1
    return advice.action(
        "set_omp_num_threads",
        from_value=1,
        to_value=target,
        flag=f"OMP_NUM_THREADS={target}",
        why=advice.say(
            "the engine computes on the CPU and limited itself to one thread; a value that is set is kept",
            "引擎在 CPU 上计算却把自己限制为一个线程；显式设置的值会被保留",
        ),
        cost=advice.say(
            "other programs on this host get fewer cores: they are the losers", "本机其他程序得到的核变少：受损的是它们"
        ),
    )


def raise_quota(advice: Advice) -> Action | None:
    """More cores, where a quota holds the server back or threads are seen to wait for one. None where neither is."""
    quota, waiting = advice.number("cpu.limit"), advice.number("cpu.runnable") or 0.0
    if not quota and waiting >= _WAITING and (advice.number("cpu.idle") or 0.0) <= _NO_IDLE:
        return advice.action(
            "raise_cpu_limit",
            why=advice.say(
                f"{waiting:.0f} threads want a core at once, and none is idle",
                f"同时有 {waiting:.0f} 个线程需要核，而没有空闲的核",
            ),
            cost=advice.say("cores cost money: whoever pays for them is the loser", "更多的核要花钱：受损的是付费方"),
        )
    if not quota:
        return None
    visible = advice.number("cpu.visible") or math.inf
    target = int(min(math.ceil(quota * (1 + (advice.number("cpu.throttled_share") or 1.0))), visible))
    if target <= quota:
        return None
    return advice.action(
        "raise_cpu_limit",
        from_value=quota,
        to_value=target,
        why=advice.say(f"the server may use {quota:g} cores", f"服务最多可用 {quota:g} 核"),
        cost=advice.say(
            "cores of the node: whatever else runs there is the loser", "占用节点的核：受损的是同节点的其他程序"
        ),
    )


def move_seen_neighbours(advice: Advice) -> Action | None:
    """Stop or move what else uses the cores. None where next to nothing does."""
    cores = advice.number("cpu.neighbour_cores") or 0.0
    loaded = (advice.number("cpu.load_per_core") or 0.0) >= 1.5
    if cores < 0.5 and not loaded:
        return None
    return advice.action(
        "move_cpu_neighbours",
        why=advice.say(
            f"other programs use {cores:.1f} cores"
            if cores >= 0.5
            else "more programs want to run than there are cores",
            f"其他程序占用了 {cores:.1f} 个核" if cores >= 0.5 else "想运行的程序多于核数",
        ),
        cost=advice.say(
            "what is moved is the loser: it needs cores elsewhere, or runs later",
            "受损的是被移走的程序：要另找核，或推迟运行",
        ),
    )
