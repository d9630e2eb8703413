"""The control thread: an event loop of its own that accepts connections and answers /metrics, /health and /admin."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from infradoc_engine.exposition import CONTENT_TYPE
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.server.acceptor import Acceptor, HandOver
from infradoc_engine.server.errors import json_response

KEEP_ALIVE_SECONDS = 30
READ_BYTES = 64 << 10  # at a time; asyncio's own 256 KiB are not to be had where the heap is nearly full
_FAREWELL_SECONDS = 0.5


class ControlRoutes:
    """`trouble()` says in one sentence why tokens cannot move, or None."""

    def __init__(
        self, metrics: EngineMetrics, trouble: Callable[[], str | None], draining: Callable[[], bool] = lambda: False
    ) -> None:
        self._metrics = metrics
        self._trouble = trouble
        self._draining = draining

    async def metrics(self, request: Request, send: Send) -> Response:
        return Response(self._metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def health(self, request: Request, send: Send) -> Response:
        trouble = self._trouble()
        if trouble is None:
            return json_response({"status": "ok"} | ({"draining": True} if self._draining() else {}))
        return json_response({"status": "unhealthy", "reason": trouble}, 503)


class HttpSide:
    """uvicorn's protocol bound to one loop and one application, without uvicorn's server around it."""

    def __init__(self, application: Any, loop: asyncio.AbstractEventLoop) -> None:
        # One access-log line a request and uvicorn's own tracebacks are not for users: no logging set up here.
        self._config = Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
            date_header=False,
        )
        self._config.load()
        self._state = ServerState()
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def take(self, connection: socket.socket) -> None:
        """Serve an accepted connection; call on the loop's own thread."""
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:
            connection.close()
            return
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio's own socket transport

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = H11Protocol(self._config, self._state, {}, self._loop)
        return protocol

    def close_idle(self) -> None:
        """Close connections without a request; the others close after their answer."""
        for protocol in list(self._state.connections):
            protocol.shutdown()

    @property
    def busy(self) -> bool:
        return bool(self._state.tasks)


class ControlThread:
    """Starts its loop at once; accepts connections after `listen`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="control", daemon=True)
        self._accepting: asyncio.Task[None] | None = None
        self._side: HttpSide | None = None

    def start(self) -> None:
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        for _ in range(2):  # a change under way says to its client that it ends; the engine thread may not answer it
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_FAREWELL_SECONDS))
        self.loop.close()

    def listen(self, listener: socket.socket, application: Any, to_main: HandOver) -> None:
        """Accept connections from now on; other than control paths go to `to_main`, called on this thread."""

        async def begin() -> None:
            self._side = HttpSide(application, self.loop)
            acceptor = Acceptor(listener, self._side.take, to_main)
            self._accepting = self.loop.create_task(acceptor.run())

        asyncio.run_coroutine_threadsafe(begin(), self.loop).result()

    def stop_accepting(self) -> None:
        """Take no new connections; the control paths of open ones still answer."""

        def stop() -> None:
            if self._accepting is not None:
                self._accepting.cancel()

        self.loop.call_soon_threadsafe(stop)

    def stop(self) -> None:
        def close() -> None:
            if self._side is not None:
                self._side.close_idle()
            self.loop.stop()

        self.loop.call_soon_threadsafe(close)
        self._thread.join(2.0)
