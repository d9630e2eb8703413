"""What a log of a served model says on its batch: too small, without graphs, or behind a front end that is full."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_POOL_SHARE = 0.85  # of the pool that a larger batch may fill
_LARGEST_STEP = 4  # times the present limit in one change, so that its effect can be judged
_SLOTS = 4
_GRAPH_LARGEST = 512
_LLAMA_BATCH = 2048  # llama.cpp's default of n_batch
_STREAM_INTERVAL = 4


def raise_clients_in_flight(advice: Advice) -> Action | None:
    """More requests in flight, as far as slots and pool go."""
    running = advice.number("serving.running_median") or advice.number("slots.most_busy")
    if not running:
        return None
    limit = advice.number("slots.count") or advice.number("serving.limit") or math.inf
    usage = advice.number("serving.kv_median")
    room = running * _POOL_SHARE / usage if usage else math.inf
    target = int(min(_LARGEST_STEP * running, limit, room))
    return advice.action(
        "raise_client_concurrency",
        from_value=int(running),
        to_value=target if target > running else None,
        why=advice.say(
            "a step over more requests takes little longer: weights are read once; "
            "look for a connection limit (100 in aiohttp, 6 a host in browsers) or a semaphore",
            "一步处理更多请求几乎不更慢：权重只读一遍；请查连接数上限（aiohttp 默认 100，浏览器每主机 6）或信号量",
        ),
        cost=advice.say(
            "each single request gets somewhat slower: whoever measures one answer at a time is the loser",
            "单个请求会略慢：受损的是逐个计时的一方",
        ),
    )


def raise_seqs_for_queue(advice: Advice) -> Action | None:
    """As many requests at once as the pool holds, up to four times the present limit."""
    running = advice.number("batch.running")
    present = advice.number("slots.count") or advice.number("max_num_seqs") or running
    if not present or not running:
        return None
    usage, waiting = advice.number("serving.kv_max"), advice.number("serving.waiting_median")
    room = present * _POOL_SHARE / usage if usage else math.inf
    wanted = present + waiting if waiting else max(_SLOTS, 2 * present)
    target = int(min(wanted, _LARGEST_STEP * present, room))
    if target <= present:
        return None
    return advice.action(
        "raise_max_num_seqs",
        from_value=int(present),
        to_value=target,
        flag=_slots_flag(advice, int(present), target),
        why=_why_more(advice, usage, int(present)),
        cost=advice.say(
            "each step takes longer: the gap between tokens of a running request is the loser",
            "每步耗时更长：受损的是运行中请求的 token 间隔",
        ),
    )


def _why_more(advice: Advice, usage: float | None, present: int) -> str:
    if usage:
        return advice.say("requests wait while memory is free for more of them", "内存还能容纳更多请求，而它们在等待")
    if present <= 1:
        return advice.say("requests run one after another", "请求只能逐个运行")
    return advice.say(f"no more than {present} requests run at once", f"同时运行的请求不超过 {present} 个")


def _slots_flag(advice: Advice, present: int, target: int) -> str | None:
    """llama.cpp divides its context across the slots: it has to grow with them, or each request gets less."""
    length = advice.number("max_model_len")
    if advice.system != "llamacpp" or not length:
        return None
    given = advice.frame.facts["max_model_len"].origin == "flag"  # --ctx-size is of all slots; logs tell that of one
    per_slot = length / present if given else length
    return f"--parallel {target} --ctx-size {round(per_slot * target)}"


def enable_continuous_batching(advice: Advice) -> Action | None:
    """Requests join a running batch (llama.cpp before it was the default). None elsewhere, or where it is on."""
    if advice.system != "llamacpp" or advice.fact("continuous_batching") is True:
        return None
    return advice.action(
        "enable_continuous_batching",
        why=advice.say("a new request then joins the batch that runs", "新请求可加入正在运行的批"),
        cost=advice.say("single requests are somewhat slower: they are the loser", "单个请求略慢：受损的是它们"),
    )


def capture_larger_batches(advice: Advice) -> Action | None:
    """Graphs up to the batches that ran without one, in powers of two. None where graphs are switched off."""
    if advice.fact("enforce_eager") is True or not advice.number("serving.eager_lines"):
        return None
    present = advice.number("cuda_graph_max_bs")
    peak = advice.number("serving.running_max") or 1.0
    target = int(min(2 ** math.ceil(math.log2(max(peak, 2.0) * 1.25)), _GRAPH_LARGEST))
    if present is not None and target <= present:
        return None
    return advice.action(
        "raise_cuda_graph_max_bs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            f"batches of up to {int(peak)} ran, larger than what was captured",
            f"批量最大到 {int(peak)}，超过已捕获的大小",
        ),
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


def admit_partial_prefills(advice: Advice) -> Action | None:
    """Several prompts part-way through prefill (vLLM V0). None elsewhere, or where the step is not split."""
    present = advice.number("max_num_partial_prefills") or 1
    if advice.system != "vllm" or present > 1 or not advice.number("serving.prefill_stalls"):
        return None
    return advice.action(
        "raise_max_partial_prefills",
        from_value=int(present),
        to_value=4,
        why=advice.say(
            "one huge prompt takes every step's budget; others may then be computed beside it",
            "一个超长提示占满每步预算；放开后其他提示可与其并行计算",
        ),
        cost=advice.say(
            "the long prompt takes longer: its time to first token is the loser", "长提示变慢：受损的是其首 token 时间"
        ),
    )


def limit_long_prefills(advice: Advice) -> Action | None:
    """Prompts over a twenty-fifth of the longest length count as long. None elsewhere."""
    longest = advice.number("max_model_len")
    if advice.system != "vllm" or advice.fact("long_prefill_token_threshold") or not longest:
        return None
    if not advice.number("serving.prefill_stalls"):
        return None
    return advice.action(
        "set_long_prefill_threshold",
        to_value=int(longest * 0.04),
        why=advice.say("long prompts then leave part of each step to short ones", "长提示便会给短提示留出每步的一部分"),
        cost=advice.say("long prompts are the loser: they take more steps", "受损的是长提示：要分更多步"),
    )


def cut_prefill_chunk(advice: Advice) -> Action | None:
    """A chunk that takes about a second at the speed seen, at least half the present one. None where it is small."""
    present = advice.number("max_num_batched_tokens") or advice.number("serving.chunk")
    if present is None or present <= 1_024:
        return None
    gap = advice.number("gaps.longest")
    target = int(max(present / max(gap, 2.0), 512)) if gap else int(present) // 2
    if advice.system == "llamacpp":
        target = max(min(target, _LLAMA_BATCH), 512)
    target = max(target // 256 * 256, 512)
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            "running requests wait for one chunk at a time, and a smaller one is over sooner",
            "运行中的请求每次要等一块，块越小越快结束",
        ),
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def order_shared_prefix(advice: Advice) -> Action | None:
    """What prompts share stands first in them. None where the cache is off: that comes first."""
    if advice.fact("prefix_caching") is False:
        return None
    return advice.action(
        "extend_shared_prefix",
        why=advice.say(
            "only a beginning that is the same to the token is reused: time stamps and names belong behind it",
            "只有逐 token 相同的开头才会被复用：时间戳和姓名应放在其后",
        ),
        cost=advice.say("prompt templates change: whoever keeps them is the loser", "需要改提示模板：受损的是其维护者"),
    )


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
    """Twice the cores, where a quota holds the server back. None where there is none."""
    quota = advice.number("cpu.limit")
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
