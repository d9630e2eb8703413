"""The tokenizer pool by itself: order, cancellation, resizing and deaths, with a small tokenizer of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from infradoc_engine.tokenizer_pool import TokenizeError, TokenizerPool
from infradoc_engine.tokenizer_process import WorkerProcess
from infradoc_engine.tokenizer_worker import pack_ids, unpack_ids


class WordEncoder:
    """One token a word: counts are known without trusting the encoder. Counts its own calls."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer(models.WordLevel({"word": 0, "other": 1, "[UNK]": 2}, unk_token="[UNK]"))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        self.calls = 0

    @property
    def json(self) -> str:
        return str(self._tokenizer.to_str())

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        self.calls += 1
        return list(self._tokenizer.encode_batch([text], add_special_tokens=add_special)[0].ids)


LONG = "word other " * 4000  # above SHORT_BYTES, so that a worker takes it


def _with_pool(scenario: Callable[[TokenizerPool, WordEncoder, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        encoder, log = WordEncoder(), []
        pool = TokenizerPool(encoder, log=log.append)
        try:
            async with asyncio.timeout(60):
                await scenario(pool, encoder, log)
        finally:
            await pool.close()

    asyncio.run(main())


def test_a_short_text_does_not_wait_behind_long_ones() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(1)
        long = [asyncio.create_task(pool.encode("word " * 300_000)) for _ in range(3)]
        await asyncio.sleep(0)
        assert (await pool.encode("word other")).ids == [0, 1]
        assert not any(task.done() for task in long) and encoder.calls == 1
        assert [text.count for text in await asyncio.gather(*long)] == [300_000] * 3
        assert encoder.calls == 1

    _with_pool(scenario)


def test_on_the_loop_and_in_workers_agree_and_encode_once() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        here = await pool.encode(LONG)
        assert here.ids == [0, 1] * 4000 and here.rendered is None and here.count == 8000
        rendered = (await pool.encode(LONG, render=True)).rendered
        assert rendered is not None and json.loads(rendered) == here.ids
        assert encoder.calls == 2
        await pool.resize(1)
        there = await pool.encode(LONG)
        assert there.ids == here.ids and there.end >= there.start > here.end
        assert (await pool.encode(LONG, render=True)).rendered == rendered
        assert encoder.calls == 2

    _with_pool(scenario)


def test_resizing_back_and_forth_loses_nothing() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        async def post(index: int) -> None:
            for _ in range(15):
                count = 2000 * (index % 2) + index + 1  # below and above SHORT_BYTES
                assert (await pool.encode("word " * count)).count == count
                await asyncio.sleep(0.02)

        posting = asyncio.gather(*(post(index) for index in range(20)))
        for workers in (2, 0, 1, 0, 1):
            await pool.resize(workers)
            assert pool.num_workers == workers
            await asyncio.sleep(0.05)
        await posting
        assert pool.num_waiting == 0 and not log

    _with_pool(scenario)


def test_retired_worker_ends_and_answers_what_it_had() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(1)
        texts = [asyncio.create_task(pool.encode("word " * 50_000)) for _ in range(4)]
        await asyncio.sleep(0)
        await pool.resize(0)
        assert [(await text).count for text in texts] == [50_000] * 4
        assert encoder.calls == 0
        while pool.pids:
            await asyncio.sleep(0.01)

    _with_pool(scenario)


@pytest.mark.parametrize("busy", [True, False])
def test_dead_worker_is_replaced_and_its_text_tried_again(busy: bool) -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(1)
        (victim,) = pool.pids
        texts = [asyncio.create_task(pool.encode("word " * 200_000)) for _ in range(3 if busy else 0)]
        await asyncio.sleep(0.05)
        os.kill(victim, signal.SIGKILL)
        assert [(await text).count for text in texts] == [200_000] * len(texts)
        while not pool.pids or pool.pids == [victim]:
            await asyncio.sleep(0.01)
        assert (await pool.encode(LONG)).count == 8000
        assert pool.num_workers == 1
        assert any(str(victim) in line for line in log)

    _with_pool(scenario)


def test_a_client_that_leaves_does_not_hold_up_the_others() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(1)
        texts = [asyncio.create_task(pool.encode("word " * 100_000)) for _ in range(6)]
        await asyncio.sleep(0.01)
        for text in texts[:4]:
            text.cancel()
        assert [(await text).count for text in texts[4:]] == [100_000] * 2

    _with_pool(scenario)


@pytest.mark.parametrize("workers", [0, 1])
def test_text_that_is_no_unicode_fails_alone(workers: int) -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(workers)
        with pytest.raises(TokenizeError, match="surrogate"):
            await pool.encode(LONG + "a\ud800b")
        assert (await pool.encode(LONG)).count == 8000

    _with_pool(scenario)


def test_a_worker_that_cannot_start_is_an_error_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(TokenizeError, match="did not start"):
            await pool.resize(1)
        assert (await pool.encode("word")).count == 1

    _with_pool(scenario)


def test_resizing_is_all_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, starts = WorkerProcess.start, []

    async def second_fails(*arguments: Any) -> WorkerProcess:
        starts.append(arguments)
        if len(starts) == 2:
            raise OSError("no more processes")
        return await real(*arguments)

    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        monkeypatch.setattr(WorkerProcess, "start", second_fails)
        with pytest.raises(TokenizeError, match="no more processes"):
            await pool.resize(2)
        assert len(starts) == 2 and pool.num_workers == 0 and pool.pids == []
        assert (await pool.encode("word")).count == 1 and encoder.calls == 1

    _with_pool(scenario)


def test_closing_fails_what_waits() -> None:
    async def scenario(pool: TokenizerPool, encoder: WordEncoder, log: list[str]) -> None:
        await pool.resize(1)
        texts: list[Any] = [asyncio.create_task(pool.encode("word " * 300_000)) for _ in range(3)]
        await asyncio.sleep(0.01)
        await pool.close()
        results = await asyncio.gather(*texts, return_exceptions=True)
        assert all(isinstance(result, TokenizeError) for result in results)

    _with_pool(scenario)


def test_ids_survive_packing() -> None:
    assert unpack_ids(pack_ids([0, 1, 49151, 2**32 - 1])) == [0, 1, 49151, 2**32 - 1]
