"""One change at a time; who waits too long for its turn, or comes when the engine has ended, gets a sentence."""

from __future__ import annotations

import asyncio

import pytest

from infradoc_engine.jobs import EngineStopped
from infradoc_engine.server.errors import ApiError
from infradoc_engine.server.turns import Turns


def test_changes_are_made_one_after_the_other() -> None:
    order: list[str] = []

    async def work(name: str) -> str:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")
        return name

    async def main() -> list[str]:
        turns = Turns(asyncio.get_running_loop())
        return list(await asyncio.gather(*(turns.take(lambda name=name: work(name)) for name in "ab")))

    assert asyncio.run(main()) == ["a", "b"]
    assert order == ["a begins", "a ends", "b begins", "b ends"]


def test_a_turn_that_does_not_come_is_503_and_the_next_one_comes() -> None:
    async def main() -> None:
        turns, end = Turns(asyncio.get_running_loop(), wait_seconds=0.02), asyncio.Event()
        first = asyncio.create_task(turns.take(end.wait))
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="another change has been under way for 0 s") as refused:
            await turns.take(end.wait)
        assert (refused.value.status, refused.value.code) == (503, "change_under_way")
        end.set()
        assert await first is True and await turns.take(end.wait) is True

    asyncio.run(main())


def test_an_engine_that_has_ended_is_503_with_its_reason() -> None:
    async def work() -> None:
        raise EngineStopped("The engine stopped: No memory for any KV pool.", "memory")

    with pytest.raises(ApiError, match=r"No memory for any KV pool\.$") as refused:
        asyncio.run(_take(work))
    assert (refused.value.status, refused.value.code) == (503, "engine_stopped")


async def _take(work: object) -> None:
    await Turns(asyncio.get_running_loop()).take(work)  # type: ignore[arg-type]
