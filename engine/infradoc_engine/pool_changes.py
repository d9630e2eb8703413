"""Changes of the KV pool between two steps: scheduler, block accounts and tensors move together.

Each function runs on the engine thread (`Engine.call`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infradoc_engine.core.kv_cache_manager import KVCacheManager

if TYPE_CHECKING:
    from infradoc_engine.core.defragment import Defragmentation
    from infradoc_engine.engine import Engine


def grow_pool(engine: Engine, num_blocks: int) -> None:
    """Raise the pool to `num_blocks`; what the runner raises when memory is short leaves it as it was."""
    engine.runner.grow_kv(num_blocks)
    with engine.lock:
        engine.cache.grow(num_blocks)


def shrink_pool(engine: Engine, num_blocks: int) -> None:
    """Cut the pool down to `num_blocks` and give the memory back.

    Leaked blocks are reclaimed, the blocks in use move to the front. Requests that do not fit any more lose their
    blocks, the last admitted first, and wait at the head of the queue. What the runner raises leaves the old size.
    """
    old = engine.cache.num_blocks
    defragment(engine)
    with engine.lock:
        while engine.cache.pool.num_used > num_blocks and engine.scheduler.running:
            engine.scheduler.preempt(engine.scheduler.running[-1].request_id, "resize")
    defragment(engine)  # the victims left holes
    with engine.lock:
        engine.cache.shrink(num_blocks)
    try:
        engine.runner.shrink_kv(num_blocks)
    except MemoryError:
        with engine.lock:
            engine.cache.grow(old)
        raise


def defragment(engine: Engine) -> Defragmentation:
    """Give leaked blocks back and move the others together; KV that could not be moved is computed again."""
    with engine.lock:
        done = engine.cache.defragment()
    try:
        engine.runner.move_blocks(done.moves)
    except Exception:  # the tables name places where nothing has arrived, whatever the reason
        with engine.lock:
            engine.scheduler.preempt_all("fault")
            engine.cache.pool.clear_hashes()
        raise
    return done


def rebuild_pool(engine: Engine, block_size: int, num_blocks: int) -> None:
    """Another pool in place of the present one; nothing may run. Waiting requests stay queued.

    What the runner raises leaves a pool of the old size. Cached prefixes and swapped KV are lost either way.
    """
    runner = engine.runner
    try:
        runner.rebuild_kv(block_size, num_blocks)
    finally:
        with engine.lock:
            limits = engine.scheduler.limits
            cache = KVCacheManager(
                runner.num_blocks,
                runner.block_size,
                prefix_caching=limits.prefix_caching,
                watermark=limits.watermark,
                host_blocks=runner.num_host_blocks,
            )
            engine.scheduler.replace_cache(cache)
            engine.cache = cache


def set_host_blocks(engine: Engine, num_blocks: int) -> None:
    """Size of the host tier. Swapped requests with blocks beyond it are computed again; MemoryError changes nothing."""
    if num_blocks > engine.runner.num_host_blocks:
        engine.runner.set_host_blocks(num_blocks)
    with engine.lock:
        engine.scheduler.set_host_blocks(num_blocks)
    engine.runner.set_host_blocks(num_blocks)
