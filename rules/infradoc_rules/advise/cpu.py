"""Too few cores: fewer compute threads, a larger quota, or neighbours that move."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_OTHERS = 0.3  # cores taken by other programs, below which moving them frees nothing that matters
# Processes of the role "other" hang below the server and are none of its own: helpers that were started there.
_USED = 'sum(rate(proc_cpu_seconds_total{role!="other"}[$mid]))'
_WAITED = 'sum(rate(proc_run_queue_seconds_total{role!="other"}[$mid]))'
_OTHER_CORES = f'sum(rate(host_cpu_seconds_total{{mode=~"user|system"}}[$mid])) - {_USED}'
_THROTTLED = 'sum(rate(host_cpu_periods_total{throttled="true"}[$mid])) / sum(rate(host_cpu_periods_total[$mid]))'


def set_omp_num_threads(advice: Advice) -> Action | None:
    """As many compute threads as there are whole cores in the quota, or in what neighbours leave of the host.

    None where there are no more threads than that. torch counts the cores of the node: its threads then wait for each
    other at every operator, and one that a neighbour keeps from its core holds up all (10 times slower on 2 cores).
    """
    quota, cores = advice.read("max(host_cpu_quota_cores)"), advice.read("max(host_cpus)")
    threads = advice.number("omp_num_threads") or advice.hint("torch_threads")
    if quota is None:
        return _beside_neighbours(advice, threads, cores)
    present = threads if threads is not None else cores
    target = max(1, math.floor(quota))
    if present is None or present <= target:
        return None
    return advice.action(
        "set_omp_num_threads",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            f"{int(present)} compute threads share {quota:g} cores and wait for each other at every operator",
            f"{int(present)} 个计算线程共用 {quota:g} 核的配额，每个算子都在互相等待",
        ),
        cost=advice.say(
            "none while the quota stays; after a larger quota the setting is the loser, it has to be raised again",
            "配额不变则无代价；若日后提高配额，受损的是此设置：需要再调高",
        ),
    )


def _beside_neighbours(advice: Advice, threads: float | None, cores: float | None) -> Action | None:
    others = _others(advice)
    if threads is None or cores is None or others is None or others <= _OTHERS:
        return None
    target = max(1, math.floor(cores - others))
    if threads <= target:
        return None
    return advice.action(
        "set_omp_num_threads",
        from_value=int(threads),
        to_value=target,
        why=advice.say(
            f"{int(threads)} compute threads wait for each other at every operator, and other programs on this host "
            f"use {others:.1f} of its {cores:.0f} cores",
            f"{int(threads)} 个计算线程在每个算子处互相等待，而本机其他程序占用了 {cores:.0f} 核中的 {others:.1f} 核",
        ),
        cost=advice.say(
            "while the neighbours are away their cores stay unused: throughput is the loser then",
            "邻居不在时其核会闲置：届时受损的是吞吐",
        ),
    )


def raise_cpu_limit(advice: Advice) -> Action | None:
    """The cores that the server could use now: what it uses plus what it waits for. None where neighbours have them."""
    cores, quota = advice.read("max(host_cpus)"), advice.read("max(host_cpu_quota_cores)")
    if quota is None and (_others(advice) or 0.0) > _OTHERS:
        return None  # nothing holds the server back but who else is there
    used = advice.read(_USED)
    wanted = advice.read(f"{_USED} + {_WAITED}") or 0.0
    if quota is not None:
        wanted = max(wanted, quota * (1 + (advice.read(_THROTTLED) or 0.0)), quota + 1)
    if not wanted or (cores is not None and quota is not None and quota >= cores):
        return None
    target = math.ceil(wanted - 0.1) if cores is None else min(math.ceil(wanted - 0.1), int(cores))
    return advice.action(
        "raise_cpu_limit",
        from_value=quota if quota is not None else round(used, 1) if used else None,
        to_value=target,
        why=advice.say(f"the server has work for {wanted:.1f} cores", f"服务端现有工作量需要 {wanted:.1f} 个核"),
        cost=advice.say(
            "cores of the node: whatever else runs there is the loser",
            "占用节点的核：受损的是同节点的其他程序",
        ),
    )


def move_cpu_neighbours(advice: Advice) -> Action | None:
    """Stop or move what else uses the cores. None where next to nothing does."""
    others, steal = _others(advice) or 0.0, advice.read('sum(rate(host_cpu_seconds_total{mode="steal"}[$mid]))') or 0.0
    if others <= _OTHERS and steal <= _OTHERS:
        return None
    where = advice.say("other programs on this host", "本机的其他程序")
    if steal > others:
        where = advice.say("other machines on the same hypervisor", "同一虚拟化主机上的其他虚拟机")
    return advice.action(
        "move_cpu_neighbours",
        why=advice.say(
            f"{where} use {max(others, steal):.1f} cores that the server waits for",
            f"{where}占用了 {max(others, steal):.1f} 个核，而服务端正在等待",
        ),
        cost=advice.say(
            "what is moved is the loser: it needs cores elsewhere, or runs later",
            "受损的是被移走的程序：要另找核，或推迟运行",
        ),
    )


def _others(advice: Advice) -> float | None:
    """Cores used by what is not the server; None where the server's own share cannot be seen."""
    return advice.read(_OTHER_CORES)
