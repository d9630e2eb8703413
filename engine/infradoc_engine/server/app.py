"""The ASGI application: a table of fixed paths, HTTP metrics, and errors that never show a traceback."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.requests import ClientGone
from infradoc_engine.server.errors import ApiError

Handler = Callable[[Request, Send], Awaitable[Response | None]]
Routes = Mapping[str, Mapping[str, Handler]]  # path -> method -> handler


class Application:
    """One instance per event loop; handlers either return a response or have sent one themselves."""

    def __init__(self, routes: Routes, metrics: EngineMetrics, log: Callable[[str], None], *, debug: bool) -> None:
        self._routes = routes
        self._metrics = metrics
        self._log = log
        self._debug = debug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start = time.monotonic()
        status = 0

        async def counting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"] if scope["path"] in self._routes else "other"  # a label must not be what clients invent
        try:
            await self._handle(scope, receive, counting_send)
        except (ClientGone, ClientDisconnect):
            status = 499  # the client left before its answer; no such code is ever sent
        except ApiError as error:
            await self._fail(error, scope, receive, counting_send, status)
        except MemoryError as error:
            self._report(path, error)
            refusal = ApiError(503, "The server has no memory for this request now.", code="out_of_memory")
            await self._fail(refusal, scope, receive, counting_send, status)
        except Exception as error:
            self._report(path, error)
            refusal = ApiError(500, "The server could not handle this request; see its log.", code="internal_error")
            await self._fail(refusal, scope, receive, counting_send, status)
        finally:  # also when a stream broke off: its error goes on to the protocol, which closes the connection
            self._metrics.http_requests.inc(path, str(status))
            self._metrics.http_seconds.observe(time.monotonic() - start, path)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self._routes.get(scope["path"])
        if methods is None:
            known = ", ".join(self._routes)
            raise ApiError(404, f"There is no {scope['path'][:100]!r} here; known paths: {known}.", code="not_found")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(methods)
            message = f"{scope['path']} does not take {method}; use {allowed}."
            raise ApiError(405, message, code="method_not_allowed", headers={"allow": allowed})
        response = await handler(Request(scope, receive), send)
        if response is not None:
            await response(scope, receive, send)

    async def _fail(self, error: ApiError, scope: Scope, receive: Receive, send: Send, status: int) -> None:
        if status:  # the head is out already: nothing but an early end can tell the client
            raise error
        await error.response()(scope, receive, send)

    def _report(self, path: str, error: Exception) -> None:
        self._log(f"{path}: {type(error).__name__}: {error}")
        if self._debug:
            traceback.print_exception(error, file=sys.stderr)
