"""One tokenizer process and the socket to it. Started by exec of a fresh interpreter; one question at a time."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from infradoc_engine.tokenizer_worker import HEADER, pack_frame

Answer = tuple[dict[str, Any], bytes]


class WorkerProcess(asyncio.Protocol):
    """A child with both of its standard streams on one socket, so that asyncio sees its death at once, idle or not.

    `gone` is true from then on, and `on_gone` has been called.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_gone: Callable[[], None]) -> None:
        self.pid = process.pid
        self.gone = False
        self._process = process
        self._on_gone = on_gone
        self._buffer = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def start(cls, tokenizer_json: str, on_gone: Callable[[], None], timeout: float) -> WorkerProcess:
        """A worker that has loaded the tokenizer. Raises OSError or TimeoutError; then nothing is left running."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            command = [sys.executable, "-P", "-m", "infradoc_engine.tokenizer_worker"]
            try:
                process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())
            except OSError:
                ours.close()
                raise
        worker = cls(process, on_gone)
        await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
        try:
            await asyncio.wait_for(worker.ask({}, tokenizer_json.encode()), timeout)
        except BaseException:
            process.kill()
            await worker.end()
            raise
        return worker

    async def ask(self, head: dict[str, Any], payload: bytes) -> Answer:
        """Send a frame and wait for the one that answers it; ConnectionResetError when the process ends before."""
        if self.gone or self._transport is None:
            raise ConnectionResetError(f"process {self.pid} ended")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(pack_frame(head, payload))
        return await self._answer

    def kill(self) -> None:
        if not self.gone:
            self._process.kill()

    async def end(self) -> None:
        """Close the socket, which ends an idle worker, and wait for the process."""
        if self._transport is not None:
            self._transport.close()
        await asyncio.to_thread(self._process.wait)

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < HEADER.size:
            return
        head_length, payload_length = HEADER.unpack_from(self._buffer)
        split, stop = HEADER.size + head_length, HEADER.size + head_length + payload_length
        if len(self._buffer) < stop:
            return
        answer = json.loads(self._buffer[HEADER.size : split]), bytes(self._buffer[split:stop])
        del self._buffer[:stop]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(f"process {self.pid} ended"))
        self._on_gone()
