"""What to change when a process was ended for host memory, or for a /dev/shm that is too small."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import is_v1
from infradoc_rules.model import Action
from infradoc_rules.units import GIB, size_text

_DEFAULT_SWAP = 4  # GiB for each device: vLLM's V0 engine, when no --swap-space is given
_SWAP_SHARE = 0.3  # of the host's memory; V0 warns from 0.4 on and refuses from 0.7 on
_HEADROOM = 1.5  # times what was there when it was not enough
_SHM_RANKS = 8 * GIB  # several ranks: rings, NCCL buffers and image tensors
_SHM_ALONE = 2 * GIB  # one rank: loader and processor workers
_SGLANG_RESERVE = 10.0 * GIB  # host memory that its cache leaves free; old versions count it in what they call free


def lower_swap_space(advice: Advice) -> Action | None:
    """vLLM's V0 engine pins this much for each device at start. Later engines have no such space."""
    refused = advice.fact("host.what") == "swap_space"
    if not refused and not (advice.system == "vllm" and _swaps(advice)):
        return None
    present = advice.number("swap_space")
    present = _DEFAULT_SWAP if present is None else present / GIB if present >= GIB else present
    size = advice.number("host.size_bytes")
    devices = advice.number("tensor_parallel_size") or 1
    target = math.floor(_SWAP_SHARE * size / GIB / devices) if size else present / 2
    target = min(target, present - 1) if refused else 0
    if present <= 0 or target >= present:
        return None
    target = int(max(target, 0))
    return advice.action(
        "lower_swap_space",
        from_value=f"{present:g} GiB",
        to_value=f"{target} GiB",
        flag=f"--swap-space {target}",
        why=advice.say(
            f"{present:g} GiB of host memory are pinned for each device"
            + (f"; there are {size_text(size)}" if size else ""),
            f"每个设备固定 {present:g} GiB 主机内存" + (f"（主机共 {size_text(size)}）" if size else ""),
        ),
        cost=advice.say(
            "preempted requests are the losers: without swap space they are computed again",
            "受损的是被抢占的请求：没有交换空间时需要重算",
        ),
    )


def _swaps(advice: Advice) -> bool:
    """Whether this engine has a swap space: its statistics name it, or it is V0 by its own word or version."""
    if any(event.name == "stats_line" and "swapped" in event.fields for event in advice.frame.events):
        return True
    return advice.fact("target.version") is not None and not is_v1(advice)


def lower_kv_host_cache(advice: Advice) -> Action | None:
    """A KV cache behind the device's that is larger than the host can give."""
    present = advice.number("kv_host_cache")
    refused = advice.fact("host.what") == "kv_host_cache"
    if not refused and not present and advice.fact("sglang.hierarchical_cache") is not True:
        return None
    unit = "MiB" if advice.system in ("llamacpp", "ollama") else "GiB"  # what the flag counts
    free = advice.number("host.free_bytes")
    ranks = advice.number("tensor_parallel_size") or 1
    want = advice.number("host.want_bytes")
    room = 0.8 * free if free else 0.0
    if advice.system == "sglang" and free and want and want < free:
        room = free / GIB * 1e9 - _SGLANG_RESERVE  # its lines count in powers of ten
    target = f"{max(math.floor(room / GIB), 1)} GiB" if refused and free else _half(present, unit)
    return advice.action(
        "lower_kv_host_cache",
        from_value=f"{present / GIB:.0f} GiB" if present and present >= GIB else present,
        to_value=target,
        why=_why_host_cache(advice, ranks, unit),
        cost=advice.say(
            "returning prefixes are the losers: more of them are computed again",
            "受损的是再次出现的前缀：更多需要重算",
        ),
    )


def _why_host_cache(advice: Advice, ranks: float, unit: str) -> str:
    if unit == "MiB":
        return advice.say(
            "prompts are kept in host memory until the cache has this size", "提示会留在主机内存中，直到缓存达到该大小"
        )
    if ranks > 1:
        return advice.say("each rank takes this much host memory at start", "启动时每个 rank 都要占用这么多主机内存")
    return advice.say("it is taken from host memory, whole, at start", "启动时一次性从主机内存中占用")


def _half(present: float | None, unit: str) -> str | None:
    return None if not present else f"{present / 2 / GIB if present >= GIB else present / 2:g} {unit}"


def lower_weights_offload(advice: Advice) -> Action | None:
    """Weights that were moved to the host have to fit there."""
    present = advice.number("weights_cpu_offload")
    if not present:
        return None
    return advice.action(
        "lower_weights_offload",
        from_value=present,
        to_value=present / 2,
        why=advice.say("weights kept on the host have to fit into its memory", "放在主机上的权重必须放得进主机内存"),
        cost=advice.say(
            "the KV pool is the loser: the weights take its place on the device",
            "受损的是 KV 池：权重要占用设备显存",
        ),
    )


def raise_host_memory(advice: Advice) -> Action:
    """More memory for the host, or a higher limit for the container."""
    size = advice.number("host.size_bytes")
    want, free = advice.number("host.want_bytes"), advice.number("host.free_bytes")
    missing = max((want or 0.0) - (free or 0.0), 0.0)
    target = math.ceil(max(_HEADROOM * size, size + missing) / GIB) if size else None
    limit = advice.fact("host.oom_by") in ("cgroup", "container") or advice.number("cgroup.memory_limit_bytes")
    return advice.action(
        "raise_host_ram",
        from_value=size_text(size) if size else None,
        to_value=f"{target} GiB" if target else None,
        flag=(
            advice.say(
                "resources.limits.memory (Kubernetes), --memory (docker)",
                "resources.limits.memory（Kubernetes）、--memory（docker）",
            )
            if limit
            else None
        ),
        why=_why(advice, size),
        cost=advice.say("the budget is the loser: memory for the host", "受损的是预算：主机内存"),
    )


def _why(advice: Advice, size: float | None) -> str:
    share = advice.number("host.used_share")
    if share is not None and size:
        return advice.say(f"{share:.0%} of {size_text(size)} were in use", f"{size_text(size)} 中已用 {share:.0%}")
    if size:
        return advice.say(f"{size_text(size)} are not enough", f"{size_text(size)} 不够用")
    return advice.say(
        "loading takes the size of the weights for each rank, beside pinned buffers",
        "加载时每个 rank 需要权重大小的内存，此外还有固定内存缓冲",
    )


def smaller_weights_for_ram(advice: Advice) -> Action | None:
    """llama.cpp and Ollama keep what is not on the device in host memory."""
    if advice.system not in ("llamacpp", "ollama"):
        return None
    return advice.action(
        "use_smaller_checkpoint",
        from_value=advice.fact("model_checkpoint"),
        to_value=advice.say("a smaller quantization of this model", "该模型更小的量化版本"),
        why=advice.say("layers that are not on the device stay in host memory", "不在设备上的层留在主机内存中"),
        cost=advice.say("callers are the losers: answers may get somewhat worse", "受损的是调用方：回答质量可能略降"),
    )


def raise_shm_size(advice: Advice) -> Action:
    """Room for the rings and tensors that processes share."""
    ranks = advice.number("tensor_parallel_size") or 1
    want = advice.number("shm.want_bytes") or 0
    size = advice.number("shm.total_bytes") or advice.number("shm.available_bytes")
    target = _SHM_RANKS if ranks > 1 or want else _SHM_ALONE
    at_once = want * ranks if want < GIB else want  # a ring is asked for by each rank, an object store once
    while target < 2 * max(at_once, size or 0):
        target *= 2
    gib = target // GIB
    return advice.action(
        "raise_shm_size",
        from_value=size_text(size) if size else None,
        to_value=f"{gib} GiB",
        flag=advice.say(
            f"--shm-size={gib}g (docker), emptyDir with medium: Memory, sizeLimit: {gib}Gi at /dev/shm (Kubernetes)",
            f"--shm-size={gib}g（docker）；在 /dev/shm 挂载 emptyDir（medium: Memory、sizeLimit: {gib}Gi，Kubernetes）",
        ),
        why=advice.say(
            f"/dev/shm has {size_text(size)}" if size else "a container gets 64 MiB of /dev/shm when nothing is said",
            f"/dev/shm 只有 {size_text(size)}" if size else "未指定时容器的 /dev/shm 只有 64 MiB",
        ),
        cost=advice.say(
            "host memory is the loser: what lies in /dev/shm counts against the container's limit",
            "受损的是主机内存：/dev/shm 中的内容计入容器的内存上限",
        ),
    )


def share_host_ipc(advice: Advice) -> Action | None:
    """The host's /dev/shm, which is half of its memory. None where the container has it already."""
    if advice.fact("ipc_host") is True:
        return None
    return advice.action(
        "share_host_ipc",
        to_value=True,
        flag=advice.say(
            "--ipc=host (docker), hostIPC: true (Kubernetes)", "--ipc=host（docker）、hostIPC: true（Kubernetes）"
        ),
        why=advice.say("the host's /dev/shm is half of its memory", "主机的 /dev/shm 是其内存的一半"),
        cost=advice.say(
            "isolation is the loser: containers see each other's shared memory",
            "受损的是隔离：容器之间能看到彼此的共享内存",
        ),
    )
