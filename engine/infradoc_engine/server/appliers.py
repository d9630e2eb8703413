"""How each live knob takes effect: on the engine thread between two steps, or on the main event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from infradoc_engine.engine import Engine
from infradoc_engine.knobs import KnobValue
from infradoc_engine.server.live_config import Apply, CannotApply
from infradoc_engine.tokenizer_pool import TokenizeError, TokenizerPool

T = TypeVar("T")

_SCHEDULER_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "watermark", "chunked_prefill", "prefix_caching")
_READ_WHERE_USED = ("truncation_policy", "max_queued_requests")


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on `loop`, from whichever loop this runs on."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def make_appliers(engine: Engine, pool: TokenizerPool, main_loop: asyncio.AbstractEventLoop) -> dict[str, Apply]:
    """One applier per live knob."""

    async def tokenizer_workers(value: KnobValue) -> KnobValue:
        try:
            await on_loop(main_loop, pool.resize(int(value or 0)))
        except TokenizeError as error:
            raise CannotApply(f"tokenizer_workers cannot be {value}: {error}") from None
        return value

    async def kv_pool_tokens(value: KnobValue) -> KnobValue:
        return await _grow(engine, value)

    async def as_is(value: KnobValue) -> KnobValue:
        return value

    appliers: dict[str, Apply] = {name: _scheduler_applier(engine, name) for name in _SCHEDULER_KNOBS}
    appliers |= dict.fromkeys(_READ_WHERE_USED, as_is)
    return appliers | {"tokenizer_workers": tokenizer_workers, "kv_pool_tokens": kv_pool_tokens}


def _scheduler_applier(engine: Engine, name: str) -> Apply:
    async def apply(value: KnobValue) -> KnobValue:
        await asyncio.wrap_future(engine.call(lambda: _set_limit(engine, name, value)))
        return value

    return apply


def _set_limit(engine: Engine, name: str, value: KnobValue) -> None:
    with engine.lock:
        setattr(engine.scheduler.limits, name, value)
        if name in ("watermark", "prefix_caching"):  # the next step would do it: an idle engine has none
            setattr(engine.cache, name, value)


async def _grow(engine: Engine, value: KnobValue) -> KnobValue:
    """Grow the pool to at least `value` tokens, in whole blocks; returns the new size in tokens."""
    size, present = engine.cache.block_size, engine.cache.num_blocks
    if value is None:
        raise CannotApply("kv_pool_tokens cannot be unset while serving; restart without the flag.")
    blocks = -(-int(value) // size)
    if blocks < present:
        raise CannotApply(
            f"kv_pool_tokens cannot shrink from {present * size} to {value} while serving; "
            f"restart with --kv-pool-tokens {value}."
        )
    if blocks > present:
        try:
            await asyncio.wrap_future(engine.call(lambda: engine.grow_pool(blocks)))
        except (MemoryError, RuntimeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CannotApply(f"kv_pool_tokens stays at {present * size}: {reason}") from None
    return blocks * size
