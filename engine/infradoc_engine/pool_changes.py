"""Changes of the KV pool between two steps: scheduler, block accounts and tensors move together.

Each function runs on the engine thread (`Engine.call`).
"""

from __future__ import annotations

from infradoc_engine.core.defragment import Defragmentation
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import EngineStopped
from infradoc_engine.memory import PoolLost


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
    defragment(engine)
    with engine.lock:
        while engine.cache.pool.num_used > num_blocks and engine.scheduler.running:
            engine.scheduler.preempt(engine.scheduler.running[-1].request_id, "resize")
    defragment(engine)  # the victims left holes
    with engine.lock:
        engine.cache.shrink(num_blocks)
    try:
        engine.runner.shrink_kv(num_blocks)
    except Exception:  # whatever the reason: the account follows the tensors that there are
        with engine.lock:
            if engine.runner.num_blocks > num_blocks:
                engine.cache.grow(engine.runner.num_blocks)
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

    What the runner raises leaves a pool of the old block size, as large as there is room for; when there is none at
    all, EngineStopped ends the loop. Cached prefixes and swapped KV are lost either way.
    """
    try:
        engine.runner.rebuild_kv(block_size, num_blocks)
    except PoolLost as error:
        raise EngineStopped(error.message, "memory") from error
    except Exception:
        _follow_runner(engine)
        raise
    _follow_runner(engine)


def _follow_runner(engine: Engine) -> None:
    """A fresh block account for the pool that the runner has now."""
    runner = engine.runner
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
