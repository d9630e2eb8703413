"""Room above the KV pool: a smaller share, a smaller pool or smaller steps, and memory that others hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.lengths import block_size, pool_tokens
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action
from infradoc_rules.units import size_text

_HEADROOM = 1.15  # over a step's need: the allocator rounds up, and libraries keep buffers between steps
_USUAL_SHARE = 0.9  # below it, engines that measure a step at start have room for what they did not measure
_STEP = 0.05  # of the device, where the need is not known
_STEP_GRAIN = 64  # tokens that a step budget is rounded down to
_VLLM_SEQS = 256  # vLLM's max_num_seqs where it is not given
_STATIC_SHARE = ("infradoc", "sglang")  # take their share as given where no step was measured
_ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"  # read by every torch; see versions.yaml


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes: the device, what is neither pool nor step, the pool, and what one step needs at most (None: unknown)."""

    device: float
    fixed: float
    pool: float
    need: float | None

    @property
    def room(self) -> float:
        """What is left above the pool for a step."""
        return max(self.device - self.fixed - self.pool, 0.0)

    @property
    def missing(self) -> float | None:
        """What a step needs, with headroom, beyond the room; not above 0 where it fits."""
        return None if self.need is None else self.need * _HEADROOM - self.room


def account(advice: Advice) -> Account | None:
    """The engine's memory account; None where it shows none. Scratch of a running step is left out by the minimum."""
    device = advice.hint("device_memory_bytes") or advice.number("device_memory_bytes")
    device = device or advice.read("max(gpu_memory_size_bytes)")
    fixed = advice.read('sum(min_over_time(llm_device_memory_bytes{part=~"weights|graphs|other"}[$long]))')
    pool = advice.read('sum(llm_device_memory_bytes{part="kv"})')
    if not device or fixed is None or pool is None:
        return None
    need = advice.hint("activation_bytes") or advice.read('sum(llm_device_memory_bytes{part="activations"})')
    return Account(device, fixed, pool, need or None)


def served_change(advice: Advice, action: Action) -> Action:
    """The action marked as possible while serving where the bundled engine takes its knob through a drain."""
    if advice.system != "infradoc" or action.knob not in advice.frame.facts:
        return action
    return replace(action, live=knob_table()[action.knob].live in ("live", "drain"))


def lower_gpu_memory_utilization(advice: Advice) -> Action | None:
    """The share that leaves a step its need above the pool. None where it would not hold one request any more."""
    present = advice.number("gpu_memory_utilization")
    target = None if present is None else _share(advice, present)
    if present is not None and (target is None or target >= present):
        return None
    known = account(advice)
    need = known.need if known else None
    action = advice.action(
        "lower_gpu_memory_utilization",
        from_value=present,
        to_value=target,
        why=advice.say(
            f"a step needs up to {size_text(need)} above the pool"
            if need
            else "the pool gives back what a step's activations need",
            f"一步的激活在池之外最多需要 {size_text(need)}" if need else "池让出一步激活所需的内存",
        ),
        cost=advice.say(
            "a smaller KV pool: fewer requests run at once, so concurrency and the prefix cache are the losers",
            "KV 池变小：同时运行的请求变少，受损的是并发和前缀缓存",
        ),
    )
    return served_change(advice, action) if action.flag is not None else None


def _share(advice: Advice, present: float) -> float | None:
    """The largest share in whole percent with enough room above it; None where weights and one request need more."""
    known = account(advice)
    if known is None or known.need is None:
        usual = _USUAL_SHARE - (_STEP if advice.system in _STATIC_SHARE else 0.0)
        return round(min(present - _STEP, usual), 2)
    if (known.missing or 0.0) <= 0:
        return round(present - _STEP, 2)  # the account says that it fits: it misses something, so a small step
    target = math.floor((1 - known.need * _HEADROOM / known.device) * 100) / 100
    per_token, longest = _bytes_per_token(advice, known), advice.number("max_model_len")
    least = (known.fixed + (per_token or 0.0) * (longest or 0.0)) / known.device
    return target if target >= least else None


def _bytes_per_token(advice: Advice, known: Account) -> float | None:
    pool = pool_tokens(advice)
    return advice.hint("kv_bytes_per_token") or (known.pool / pool if pool else None)


def lower_kv_capacity(advice: Advice) -> Action | None:
    """A pool smaller by what a step lacks. None where that is unknown or nothing, or one request would not fit."""
    known, pool = account(advice), pool_tokens(advice)
    if known is None or not pool or known.missing is None or known.missing <= 0:
        return None
    per_token, size = _bytes_per_token(advice, known), block_size(advice)
    if not per_token:
        return None
    target = int(pool - known.missing / per_token) // size * size
    if target < max(advice.number("max_model_len") or 0, size):
        return None
    return advice.action(
        "lower_kv_capacity",
        from_value=pool,
        to_value=target,
        why=advice.say(
            f"{size_text(known.missing)} less for KV is what the largest step lacks",
            f"KV 少占 {size_text(known.missing)}，正好补上最大一步所缺",
        ),
        cost=advice.say(
            "fewer requests run at once: time to first token is the loser under load",
            "同时运行的请求变少：负载高时受损的是首 token 时间",
        ),
    )


def fit_step_to_memory(advice: Advice) -> Action | None:
    """A step budget in proportion to the room; half of the present one where the room is not known."""
    present = advice.number("max_num_batched_tokens")
    known = account(advice)
    if present is None or present <= _STEP_GRAIN:
        return None
    fitting = present / 2
    if known is not None and known.need:
        # Heap that refused steps left behind is used again, so the share's own margin counts as room as well.
        margin = known.device * (1 - (advice.number("gpu_memory_utilization") or 1.0))
        share = max(known.room, margin) / (known.need * _HEADROOM)
        fitting = present * share if share < 1 else fitting
        if fitting < _STEP_GRAIN:
            return None  # no step budget makes up for a room of nothing
    # A step holds a token of every running request at least; vLLM refuses to start with a budget below max_num_seqs.
    least = advice.number("max_num_seqs") or (_VLLM_SEQS if advice.system == "vllm" else 0)
    target = max(_STEP_GRAIN, int(least), int(fitting) // _STEP_GRAIN * _STEP_GRAIN)
    if target >= present:
        return None
    # The bundled engine splits what is longer than its budget in any case.
    whole = advice.fact("chunked_prefill") is False and advice.system != "infradoc"
    also = "" if not whole else advice.say("; enable chunked prefill with it", "；同时需开启分块预填充")
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present),
        to_value=target,
        why=advice.say("activations grow with the tokens of a step", "激活随一步的 token 数增长") + also,
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def set_expandable_segments(advice: Advice) -> Action | None:
    """Segments that grow instead of being split. None where they are set already, by a name that this torch reads."""
    names = ("pytorch_alloc_conf", "PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF")
    present = next((value for name in names if (value := advice.fact(name)) is not None), None)
    unread = _set_by_unread_name(advice)
    if present is not None and "expandable_segments:true" in str(present).lower() and not unread:
        return None
    return advice.action(
        "set_expandable_segments",
        from_value=present,
        to_value="expandable_segments:True",
        flag=_ALLOC_CONF,
        why=advice.say(
            "this torch ignores the setting under the name PYTORCH_ALLOC_CONF"
            if unread
            else "freed pieces join again, whatever their size was",
            "此版本 torch 会忽略以 PYTORCH_ALLOC_CONF 为名的该设置"
            if unread
            else "释放的碎片可以重新拼合，与其原来大小无关",
        ),
        cost=advice.say(
            "a restart; CUDA IPC of tensors does not work with it on old drivers: such setups are the loser",
            "需要重启；旧驱动上与张量的 CUDA IPC 不兼容：受损的是这类部署",
        ),
    )


def _set_by_unread_name(advice: Advice) -> bool:
    """Whether the allocator is set by the new name alone, and this torch is known to do nothing with it."""
    old, new = (advice.fact(f"env.{name}") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    return new is not None and old is None and advice.running.has("PYTORCH_ALLOC_CONF") is False


def stop_other_process(advice: Advice) -> Action:
    """Another program leaves the device."""
    held = advice.read('sum(gpu_process_memory_bytes{owner="other"})')
    return advice.action(
        "stop_other_process",
        why=advice.say(
            f"it holds {size_text(held)} that this server was sized to use"
            if held
            else "it holds memory of the device",
            f"它占着 {size_text(held)}，而本服务按可用这些显存来配置" if held else "它占着设备的显存",
        ),
        cost=advice.say("whoever uses that program is the loser", "受损的是使用该程序的人"),
    )


def raise_host_ram(advice: Advice) -> Action | None:
    """More memory for the host. None where the host does not swap."""
    used = advice.read("max(host_swap_used_bytes)")
    if not used:
        return None
    size = advice.read("max(host_memory_size_bytes)")
    return advice.action(
        "raise_host_ram",
        from_value=int(size) if size else None,
        to_value=int(size + used * _HEADROOM) if size else None,
        why=advice.say(
            f"{size_text(used)} of programs' memory lie on disk", f"有 {size_text(used)} 的程序内存被换到磁盘"
        ),
        cost=advice.say("the hardware; the budget is the loser", "硬件成本：受损的是预算"),
    )


def restart_to_free(advice: Advice) -> Action | None:
    """A restart gives back what a process no longer knows of. None for a training run, which has ended anyway."""
    if advice.fact("train.oom") is True:
        return None
    split = advice.fact("oom.fragmented") is True
    return advice.action(
        "restart_engine",
        why=advice.say(
            "the pieces are whole again in a new process, and come apart again under the same load"
            if split
            else "what nothing refers to comes back only when the process ends; the leak fills it again until it is "
            "mended",
            "新进程中内存重新完整，但在同样的负载下会再次碎裂"
            if split
            else "没有引用的内存只有在进程结束时才归还；在修复泄漏之前还会再次增长",
        ),
        cost=advice.say(
            "running requests and the prefix cache are lost: their callers are the losers",
            "运行中的请求和前缀缓存会丢失：受损的是其调用方",
        ),
    )
