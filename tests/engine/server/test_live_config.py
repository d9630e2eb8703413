"""The knobs that are shown: in force, whatever became of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infradoc_engine import budget
from infradoc_engine.config import EngineConfig, ServerConfig
from infradoc_engine.engine import Engine
from infradoc_engine.frontend import Frontend
from infradoc_engine.jobs import EngineStopped
from infradoc_engine.knobs import KNOBS, KnobValue
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.prompts import Refused
from infradoc_engine.server.build import LoadedModel, build_engine, load
from infradoc_engine.server.drain import Drainer
from infradoc_engine.server.errors import ApiError
from infradoc_engine.server.in_force import read_in_force
from infradoc_engine.server.live_config import LiveConfig
from infradoc_engine.server.resize import Resizer
from infradoc_engine.tokenizer_pool import TokenizerPool

SIZES = {"max_model_len": 64, "kv_pool_tokens": 256, "max_num_seqs": 2, "omp_num_threads": 1}


class Served:
    """A tiny model with its engine, and the knobs over them."""

    def __init__(self, path: Path, **knobs: KnobValue) -> None:
        values = {name: knob.default for name, knob in KNOBS.items()} | SIZES | knobs
        origins = dict.fromkeys(values, "flag")
        self.loaded: LoadedModel = load(EngineConfig(str(path), "cpu", ServerConfig(), values, origins))
        self.engine: Engine = build_engine(self.loaded, EngineMetrics(), lambda events: None, lambda text: None)
        runner, drainer = self.loaded.runner, Drainer(self.engine, 0.0, 5.0)
        self.live = LiveConfig(
            self.loaded.knobs,
            origins,
            {},
            Resizer(self.engine, runner, drainer).change,
            read_in_force(self.engine, runner),
        )

    def frontend(self) -> Frontend:
        tokenizer = self.loaded.tokenizer
        return Frontend(
            self.engine,
            TokenizerPool(tokenizer),
            decode=tokenizer.decode,
            vocab_size=260,
            eos_token_ids=frozenset(),
            limits=self.live,
            metrics=EngineMetrics(),
        )

    def change(self, **knobs: KnobValue) -> None:
        asyncio.run(self.live.change(knobs, "*", None))


@pytest.fixture
def served(tiny_gguf: Callable[..., Path]) -> Any:
    made = Served(tiny_gguf(), swap_space=100_000)
    made.engine.start()
    yield made
    made.engine.stop()


def test_a_format_that_was_left_open_is_shown_as_what_it_became(served: Any) -> None:
    assert KNOBS["dtype"].default == "auto" and served.live.value("dtype") == "float32"


def test_a_host_tier_that_was_dropped_is_shown_as_none(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.live.value("swap_space") == 100_000 and served.engine.cache.host_blocks > 0
    monkeypatch.setattr(budget, "available_bytes", lambda: 0)
    served.change(block_size=8)
    assert served.live.value("block_size") == 8 and served.engine.cache.host_blocks == 0
    assert served.live.value("swap_space") == 0


def test_a_pool_that_came_back_smaller_is_shown_as_it_is(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse_above(served, monkeypatch, 128 * served.loaded.runner.kv_bytes_per_token())
    version = served.live.version
    with pytest.raises(ApiError, match=r"the pool has 96 tokens now\.$") as refused:
        served.change(block_size=32)
    assert refused.value.status == 409
    shown = {name: served.live.value(name) for name in ("block_size", "kv_pool_tokens", "max_model_len")}
    assert shown == {"block_size": 16, "kv_pool_tokens": 96, "max_model_len": 64}
    assert served.live.version == version + 1 and served.engine.cache.num_blocks == 6
    assert served.engine.trouble(10) is None


def test_a_pool_that_is_lost_is_said_to_everybody(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse_above(served, monkeypatch, 0)
    for knobs in ({"block_size": 32}, {"max_model_len": 32}):
        with pytest.raises(ApiError, match="No memory for any KV pool") as refused:
            served.change(**knobs)
        assert (refused.value.status, refused.value.code) == (503, "engine_stopped")
    assert "No memory for any KV pool" in str(served.engine.trouble(10))
    with pytest.raises(Refused, match=r"No memory for any KV pool.*; free memory and restart the server\.$"):
        served.frontend().check_admission(1)
    assert served.live.value("kv_pool_tokens") == 0 and served.live.value("block_size") == 16
    with pytest.raises(EngineStopped, match="No memory for any KV pool"):
        served.engine.call(lambda: None).result(10)


def _refuse_above(served: Any, monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """From the moment at which the old pool is given up, the allocator has no more than that for another."""
    pool = served.loaded.runner._pool
    make, tokens = pool._allocate, num_bytes // served.loaded.runner.kv_bytes_per_token()

    def allocate(block_size: int, num_blocks: int) -> Any:
        return make(block_size, num_blocks if num_blocks * block_size <= tokens else 1 << 50)

    monkeypatch.setattr(pool, "_allocate", allocate)


@pytest.mark.parametrize("others", [{"block_size": 8}, {"max_model_len": 32, "block_size": 8}, {}])
def test_what_cannot_be_unset_is_refused_before_anything_drains(others: Mapping[str, KnobValue]) -> None:
    values: dict[str, KnobValue] = {name: knob.default for name, knob in KNOBS.items()} | SIZES
    drained: list[object] = []

    async def change(*asked: object) -> dict[str, KnobValue]:
        drained.append(asked)
        return {}

    async def apply(value: KnobValue) -> KnobValue:
        return value

    live = LiveConfig(values, dict.fromkeys(values, "flag"), dict.fromkeys(values, apply), change)
    with pytest.raises(ApiError, match="kv_pool_tokens cannot be unset while serving") as refused:
        asyncio.run(live.change({**others, "kv_pool_tokens": None}, "*", None))
    assert refused.value.status == 409 and not drained and live.version == 1
    asyncio.run(live.change({"max_queued_requests": 3}, "*", None))
    asyncio.run(live.change({"max_queued_requests": None}, "*", None))  # what is no derived value can be unset
    assert live.value("max_queued_requests") is None
