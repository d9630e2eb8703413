"""A call that may hang, in a thread that nobody has to wait for: a name service that is silent, a library of others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


async def in_thread(call: Callable[[], Answer], name: str) -> Answer:
    """What `call` returns or raises. Whoever stops waiting is free at once; the thread ends later, or never.

    The event loop's own pool would do for neither: a few hanging calls fill it for all sinks, and a program does not
    end before it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()

    def tell(answer: Answer | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer)  # type: ignore[arg-type]  # there is an answer where there is no error

    def work() -> None:
        answer, fault = None, None
        try:
            answer = call()
        except BaseException as error:
            fault = error
        try:
            loop.call_soon_threadsafe(tell, answer, fault)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done
