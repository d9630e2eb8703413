"""A tiny real HTTP server, in a thread of its own, that answers like an OpenAI-compatible one or breaks on purpose."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

Chunks = list[bytes]


class TinyServer:
    """Answers `/v1/models`, completions, chat streams and `/tokenize`; `behaviour` says how.

    Behaviours: good, burst (all events in one packet), bytewise (packets that split events), cut (connection closed
    in mid-stream), 503, 400, garbage (no HTTP), close (no keep-alive, no length), stall (never an answer).
    """

    def __init__(self) -> None:
        self.behaviour = "good"
        self.gap = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")), 0)
        body = await reader.readexactly(length)
        if path == "/v1/models":
            return await self._plain(writer, 200, b'{"data": [{"id": "tiny"}]}')
        self.bodies.append({"path": path, **json.loads(body)})
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(writer, path, json.loads(body))
        finally:
            self.in_flight -= 1

    async def _answer(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> bool:
        if self.behaviour in ("503", "400"):
            return await self._plain(writer, int(self.behaviour), b'{"error": {"message": "no thanks"}}')
        if self.behaviour == "garbage":
            writer.write(b"SSH-2.0-OpenSSH_9\r\n")
            return False
        if self.behaviour == "stall":
            await asyncio.sleep(3600)
        if path == "/tokenize":
            count = len(body["prompt"].split())
            return await self._plain(writer, 200, json.dumps({"count": count, "tokens": []}).encode())
        if not body["stream"]:
            answer = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}
            return await self._plain(writer, 200, json.dumps(answer).encode())
        return await self._stream(writer, body)

    async def _plain(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> bool:
        close = self.behaviour == "close"
        length = "" if close else f"Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{length}\r\n".encode() + body)
        await writer.drain()
        return not close

    async def _stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        packets = self._packets(body)
        for packet in packets[:-2] if self.behaviour == "cut" else packets:
            writer.write(b"%x\r\n%s\r\n" % (len(packet), packet))
            await writer.drain()
            await asyncio.sleep(self.gap)
        if self.behaviour == "cut":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _packets(self, body: dict[str, Any]) -> Chunks:
        count = body["max_tokens"]
        events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        events += [{"choices": [{"delta": {"content": f"t{i}"}}]} for i in range(count)]
        events += [{"choices": [{"delta": {}, "finish_reason": "length"}]}]
        events += [{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": count}}]
        packets = [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]
        if self.behaviour == "burst":
            return [b"".join(packets)]
        if self.behaviour == "bytewise":
            whole = b"".join(packets)
            return [whole[i : i + 7] for i in range(0, len(whole), 7)]
        return packets


@pytest.fixture
def tiny_server() -> Iterator[TinyServer]:
    """A running server; set `.behaviour` before sending."""
    server = TinyServer()
    server.start()
    yield server
    server.stop()
