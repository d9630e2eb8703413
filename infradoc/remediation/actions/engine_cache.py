"""Actions on the KV pool."""

from __future__ import annotations

from infradoc.remediation.actions.base import LiveAction, by_name

ENGINE_CACHE = by_name(
    LiveAction("raise_kv_capacity", "kv_pool_tokens", loser="whatever else wants this memory on the device"),
    LiveAction("lower_kv_capacity", "kv_pool_tokens", loser="new requests: fewer run at once, and cached prefixes go"),
    LiveAction(
        "lower_gpu_memory_utilization",
        "gpu_memory_utilization",
        loser="new requests: the pool is smaller; what runs is computed again once",
        drains=True,
    ),
    LiveAction(
        "lower_block_size",
        "block_size",
        loser="what runs is computed again once, the prefix cache starts empty",
        drains=True,
    ),
    LiveAction(
        "recompute_instead_of_swap", "preemption_mode", loser="long preempted requests: they are computed again"
    ),
    LiveAction(
        "defragment_kv",
        "defragment",
        loser="the step that moves the blocks: a short pause",
        call="/admin/defragment",
    ),
)
