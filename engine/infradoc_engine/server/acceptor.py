"""One port, two event loops: each new connection goes to the loop that its first request belongs to.

The main loop may be blocked for half a second by a long text; /metrics, /health and /admin must not wait for that. So a
loop of its own accepts, looks at the request line without consuming it, keeps the control paths and hands everything
else over. Later requests of a kept-alive connection are answered by the loop that has it: both know all paths.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

CONTROL_PATHS = (b"/metrics", b"/health", b"/admin")
PEEK_BYTES = 1024
PEEK_SECONDS = 2.0  # a client that has not sent its request line by then is served by the main loop

HandOver = Callable[[socket.socket], None]


def is_control(head: bytes) -> bool | None:
    """Whether a request that begins with `head` is for a control path; None when more bytes are needed."""
    method, space, rest = head.partition(b" ")
    if not space:
        return None if len(method) <= 16 and b"\n" not in method else False
    for path in CONTROL_PATHS:
        if rest.startswith(path) and rest[len(path) : len(path) + 1] in (b" ", b"?", b"/"):
            return True
        if len(rest) <= len(path) and path.startswith(rest):
            return None
    return False


class Acceptor:
    """Runs on the control loop."""

    def __init__(self, listener: socket.socket, to_control: HandOver, to_main: HandOver) -> None:
        self._listener = listener
        self._to_control = to_control
        self._to_main = to_main
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # out of file descriptors, or the peer is gone already: others may still come through
                await asyncio.sleep(0.05)
                continue
            self._spawn(self._route(connection))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _route(self, connection: socket.socket) -> None:
        try:
            control = await asyncio.wait_for(self._peek(connection), PEEK_SECONDS)
        except TimeoutError:
            control = False
        except OSError:
            connection.close()
            return
        (self._to_control if control else self._to_main)(connection)

    async def _peek(self, connection: socket.socket) -> bool:
        """Whether the first request is for a control path; raises OSError when the client is gone."""
        while True:
            await _readable(connection)
            head = connection.recv(PEEK_BYTES, socket.MSG_PEEK)
            if not head:
                raise ConnectionResetError
            control = is_control(head)
            if control is not None:
                return control
            await asyncio.sleep(0.005)  # what was peeked at stays readable: without a pause this would spin


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, wake)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
