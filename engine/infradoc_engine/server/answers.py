"""Sends the pieces of a generation: as one JSON body or as server-sent events. Watches for a client that hangs up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Send

from infradoc_engine.frontend import Frontend
from infradoc_engine.requests import Choice, Generation, Piece
from infradoc_engine.server.errors import ApiError, from_failure, json_bytes
from infradoc_engine.server.shapes import Assembled, Shape, truncation_flag


@asynccontextmanager
async def watching(generation: Generation, receive: Receive) -> AsyncIterator[None]:
    """While inside, a hang-up of the client ends the generation; at the end nothing of it runs any more."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generation.hang_up()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        generation.close()


async def send_whole(frontend: Frontend, generation: Generation, shape: Shape, send: Send) -> None:
    """Wait for every choice and send one JSON body. Raises ApiError, before any byte, when the engine gave one up."""
    got = {choice.index: Assembled() for choice in generation.choices}
    async for piece in generation.pieces():
        if piece.failure is not None:
            frontend.complete(piece.choice)
            raise from_failure(piece.failure)
        got[piece.choice.index].add(piece)
    start = time.monotonic()
    body = json_bytes(shape.answer([(choice, got[choice.index]) for choice in generation.choices]))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    stop = time.monotonic()
    for choice in generation.choices:
        # An answer that was ready early waited for its siblings; that wait belongs to sending it whole.
        choice.ledger.send_span(choice.last_token or start, stop)
        frontend.complete(choice)


class EventStream:
    """Server-sent events of one generation.

    The head goes out with the first piece, so that an error before it has its HTTP code.
    """

    def __init__(self, frontend: Frontend, shape: Shape, send: Send, *, include_usage: bool) -> None:
        self._frontend = frontend
        self._shape = shape
        self._send = send
        self._include_usage = include_usage
        self._started = False
        self._introduced: set[int] = set()

    async def run(self, generation: Generation) -> None:
        async for piece in generation.pieces():
            if piece.failure is not None:
                self._frontend.complete(piece.choice)
                await self._fail(from_failure(piece.failure))
                return
            await self._piece(piece)
        last = b""
        if self._include_usage:
            last = _event(self._shape.usage_chunk(generation.choices))
        await self._write(last + b"data: [DONE]\n\n", more=False)

    async def _piece(self, piece: Piece) -> None:
        start = time.monotonic()
        choice = piece.choice
        if piece.text or piece.finish_reason is not None or piece.token is not None:
            content = self._shape.piece(piece)
            if piece.finish_reason is not None:
                content |= truncation_flag([choice])
            await self._write(self._introduction(choice) + _event(content))
        choice.ledger.send_span(start, time.monotonic())
        if choice.done:
            self._frontend.complete(choice)

    def _introduction(self, choice: Choice) -> bytes:
        if choice.index in self._introduced:
            return b""
        self._introduced.add(choice.index)
        first = self._shape.first_chunk(choice)
        return b"" if first is None else _event(first)

    async def _fail(self, error: ApiError) -> None:
        if not self._started:
            raise error
        await self._write(_event(error.body()) + b"data: [DONE]\n\n", more=False)

    async def _write(self, data: bytes, more: bool = True) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def _event(content: object) -> bytes:
    return b"data: " + json_bytes(content) + b"\n\n"
