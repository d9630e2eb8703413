"""Actions on the KV pool."""

from __future__ import annotations

from infradoc.remediation.actions.base import LiveAction, by_name

ENGINE_CACHE = by_name(
    # Blocks at the end of the pool may be in use at any time, so the engine shrinks its pool only at a start.
    LiveAction(
        "raise_kv_capacity", "kv_pool_tokens", loser="whatever else wants this memory on the device", undo="restart"
    ),
)
