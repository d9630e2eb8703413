"""Knobs that need a drain, and the size of the KV pool: planned first, so that a refusal costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from infradoc_engine import pool_changes
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import EngineStopped
from infradoc_engine.knobs import KnobValue
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.server.drain import Drainer, StepRunning
from infradoc_engine.server.live_config import CannotApply

Values = Mapping[str, KnobValue]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the drained knobs come to: the pool and what a request may need of it."""

    block_size: int
    num_blocks: int
    max_model_len: int
    utilization: float
    graph_max_batch: int
    swap_space: int
    asked_tokens: int | None  # for the pool, before rounding to whole blocks; None: it follows the memory share

    @property
    def pool_tokens(self) -> int:
        return self.block_size * self.num_blocks


class Resizer:
    """Applies drained knobs together, with one drain, and the pool's size alone, with none."""

    def __init__(self, engine: Engine, runner: ModelRunner, drainer: Drainer) -> None:
        self._engine = engine
        self._runner = runner
        self._drainer = drainer
        # Each block size rounds the pool down. Without what was asked for, going there and back would not come back.
        self._asked: int | None = None
        self._rounded: int | None = None  # what `_asked` came to; another size in force is somebody's newer wish

    async def change(
        self, changes: Values, present: Values, derived_pool: bool, seconds: float | None
    ) -> dict[str, KnobValue]:
        """`changes` of drained knobs (kv_pool_tokens may be among them); returns the values that took effect.

        `derived_pool`: nobody asked for the pool's present size, so it follows the memory share. Raises CannotApply
        with everything as before, but for the pool where memory for the old one was gone; EngineStopped, StepRunning.
        """
        try:
            shape = await self._drainer.call(lambda: self._plan(changes, present, derived_pool))
            await self._drainer.around(lambda: self._make(shape), seconds)
        except ValueError as error:
            raise CannotApply(_sentence(f"{_names(changes)} cannot change: {error}"), status=422) from None
        except NotEnoughMemory as error:
            raise CannotApply(_no_room(changes, error, self._runner.device_bytes, present)) from None
        except (EngineStopped, StepRunning):
            raise
        except (MemoryError, RuntimeError) as error:
            raise CannotApply(_sentence(f"{_names(changes)} stays as it was: {_first_line(error)}")) from None
        self._asked, self._rounded = shape.asked_tokens or shape.pool_tokens, shape.pool_tokens
        return dict(changes) | {"kv_pool_tokens": shape.pool_tokens}

    def _plan(self, changes: Values, present: Values, derived_pool: bool) -> Shape:
        wanted = dict(present) | dict(changes)
        length, share = _whole(wanted["max_model_len"]), float(wanted["gpu_memory_utilization"] or 0)
        tokens: int | None = _whole(wanted["kv_pool_tokens"])
        if "kv_pool_tokens" not in changes and tokens == self._rounded:
            tokens = self._asked
        follows = "gpu_memory_utilization" in changes or length > _whole(tokens)
        if derived_pool and "kv_pool_tokens" not in changes and follows:
            tokens = None
        size = _whole(wanted["block_size"])
        blocks = self._runner.budget.plan_pool(tokens, size, max_model_len=length, utilization=share)
        graphs, swap = _whole(wanted["cuda_graph_max_bs"]), _whole(wanted["swap_space"])
        return Shape(size, blocks, length, share, graphs, swap, tokens)

    def _make(self, shape: Shape) -> None:
        """On the engine thread, nothing runs."""
        engine, runner = self._engine, self._runner
        self._check_queue(shape)
        if (shape.block_size, shape.num_blocks) != (runner.block_size, runner.num_blocks):
            pool_changes.rebuild_pool(engine, shape.block_size, shape.num_blocks)
            self._fit_host(shape)
        runner.settle(shape.max_model_len, shape.utilization, shape.graph_max_batch)
        with engine.lock:
            engine.scheduler.limits.max_model_len = shape.max_model_len

    def _fit_host(self, shape: Shape) -> None:
        """Whole blocks of another size may be fewer bytes than were asked for."""
        blocks = self._runner.host_blocks_for(shape.swap_space)
        if self._runner.num_host_blocks not in (0, blocks):
            with suppress(NotEnoughMemory):  # what there is stays, and is what is shown
                pool_changes.set_host_blocks(self._engine, blocks)

    def _check_queue(self, shape: Shape) -> None:
        """A request that was taken in must be able to go on."""
        longest = max((request.num_tokens for request in self._engine.scheduler.waiting), default=0)
        room = min(shape.max_model_len, shape.pool_tokens)
        if longest + 1 > room:
            raise RuntimeError(f"a request of {longest} tokens is under way and {room} would be too few for it")

    async def set_pool(self, tokens: KnobValue, max_model_len: int) -> KnobValue:
        """Grow or shrink the pool while requests run, in whole blocks; returns its size in tokens."""
        size, present = self._engine.cache.block_size, self._engine.cache.num_blocks
        blocks, needed = -(-_whole(tokens) // size), -(-max_model_len // size)
        if blocks < needed:
            raise CannotApply(
                f"kv_pool_tokens cannot be {tokens}: one request of max_model_len {max_model_len} needs "
                f"{needed * size} tokens; give at least that, or lower max_model_len first."
            )
        if blocks != present:
            change: Callable[[Engine, int], None] = (
                pool_changes.grow_pool if blocks > present else pool_changes.shrink_pool
            )
            try:
                await self._drainer.call(lambda: change(self._engine, blocks))
            except (EngineStopped, StepRunning):
                raise
            except (MemoryError, RuntimeError) as error:
                raise CannotApply(f"kv_pool_tokens stays at {present * size}: {_first_line(error)}") from None
        return blocks * size


def _no_room(changes: Values, error: NotEnoughMemory, device_bytes: int, present: Values) -> str:
    sentence = f"{_names(changes)} stays as it was: {_first_line(error)}"
    share, needed = changes.get("gpu_memory_utilization"), error.fits.get("device_memory_bytes")
    if share is None or needed is None:
        return sentence
    least = ceil(1000 * float(share) * needed / device_bytes) / 1000
    return f"{sentence} The lowest gpu_memory_utilization that fits is {least:g}." if least <= 1 else sentence


def _names(changes: Values) -> str:
    return " and ".join(changes)


def _sentence(text: str) -> str:
    return text.rstrip(".") + "."


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _whole(value: KnobValue) -> int:
    assert isinstance(value, int)
    return value
