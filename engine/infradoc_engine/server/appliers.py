"""How each live knob takes effect: on the engine thread between two steps, or on the main event loop."""

from __future__ import annotations

import asyncio

from infradoc_engine import pool_changes
from infradoc_engine.engine import Engine
from infradoc_engine.knobs import KnobValue
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.server.drain import Drainer
from infradoc_engine.server.live_config import Apply, CannotApply
from infradoc_engine.server.resize import Resizer
from infradoc_engine.server.turns import on_loop
from infradoc_engine.tokenizer_pool import TokenizeError, TokenizerPool

_SCHEDULER_KNOBS = ("watermark", "chunked_prefill", "prefix_caching", "preemption_mode")
_STEP_KNOBS = ("max_num_seqs", "max_num_batched_tokens")
_READ_WHERE_USED = ("truncation_policy", "max_queued_requests")


def make_appliers(
    engine: Engine,
    runner: ModelRunner,
    pool: TokenizerPool,
    resizer: Resizer,
    drainer: Drainer,
    main_loop: asyncio.AbstractEventLoop,
) -> dict[str, Apply]:
    """One applier per live knob."""

    async def tokenizer_workers(value: KnobValue) -> KnobValue:
        try:
            await on_loop(main_loop, pool.resize(int(value or 0)))
        except TokenizeError as error:
            raise CannotApply(f"tokenizer_workers cannot be {value}: {error}") from None
        return value

    async def kv_pool_tokens(value: KnobValue) -> KnobValue:
        return await resizer.set_pool(value, engine.scheduler.limits.max_model_len)

    async def as_is(value: KnobValue) -> KnobValue:
        return value

    appliers: dict[str, Apply] = {name: _scheduler_applier(engine, drainer, name) for name in _SCHEDULER_KNOBS}
    appliers |= {name: _step_applier(engine, runner, drainer, name) for name in _STEP_KNOBS}
    appliers |= dict.fromkeys(_READ_WHERE_USED, as_is)
    return appliers | {
        "tokenizer_workers": tokenizer_workers,
        "kv_pool_tokens": kv_pool_tokens,
        "swap_space": _swap_applier(engine, runner, drainer),
        "enforce_eager": _eager_applier(runner, drainer),
    }


def _scheduler_applier(engine: Engine, drainer: Drainer, name: str) -> Apply:
    async def apply(value: KnobValue) -> KnobValue:
        await drainer.call(lambda: _set_limit(engine, name, value))
        return value

    return apply


def _step_applier(engine: Engine, runner: ModelRunner, drainer: Drainer, name: str) -> Apply:
    """The size of a step: a larger one must find the memory that it takes at most."""

    def change(value: int) -> None:
        limits = engine.scheduler.limits
        size = {"max_num_batched_tokens": limits.max_num_batched_tokens, "max_num_seqs": limits.max_num_seqs}
        runner.set_step_limits(**(size | {name: value}))
        _set_limit(engine, name, value)

    async def apply(value: KnobValue) -> KnobValue:
        assert isinstance(value, int)
        try:
            await drainer.call(lambda: change(value))
        except MemoryError as error:
            raise CannotApply(f"{name} cannot be {value}: {error}") from None
        return value

    return apply


def _swap_applier(engine: Engine, runner: ModelRunner, drainer: Drainer) -> Apply:
    async def apply(value: KnobValue) -> KnobValue:
        def change() -> None:
            pool_changes.set_host_blocks(engine, runner.host_blocks_for(int(value or 0)))

        try:
            await drainer.call(change)
        except MemoryError as error:
            raise CannotApply(f"swap_space cannot be {value}: {error}") from None
        return value

    return apply


def _eager_applier(runner: ModelRunner, drainer: Drainer) -> Apply:
    async def apply(value: KnobValue) -> KnobValue:
        await drainer.call(lambda: runner.set_eager(bool(value)))
        return value

    return apply


def _set_limit(engine: Engine, name: str, value: KnobValue) -> None:
    with engine.lock:
        setattr(engine.scheduler.limits, name, value)
        if name in ("watermark", "prefix_caching"):  # the next step would do it: an idle engine has none
            setattr(engine.cache, name, value)
