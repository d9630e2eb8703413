"""A receiver that does its worst, as a process: `hostile_receiver.py SEED OUT` prints its port and logs into OUT.

Each line of OUT is one message that it took in: path and body. It takes some in and then hangs up without a word, so
a sender cannot know; what it answers otherwise is drawn at random. Signatures are checked here from their definition.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import sys
from pathlib import Path

SECRET = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


def signed(headers: dict[str, str], body: bytes) -> bool:
    """Standard Webhooks: HMAC-SHA256 over id.timestamp.body."""
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    want = base64.b64encode(hmac.new(SECRET, content, hashlib.sha256).digest()).decode()
    return f"v1,{want}" in headers["webhook-signature"].split(" ")


class Hostile:
    """Draws what happens to each request."""

    def __init__(self, seed: int, out: str) -> None:
        self.chance = random.Random(seed)
        self.out = Path(out)
        self.waits = 3  # times that it asks for a whole second of silence

    def take(self, path: str, body: bytes) -> None:
        with self.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps([path, json.loads(body)]) + "\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1]
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if path == "/stolen":
            self.take(path, b"{}")
        if path == "/hook" and not signed(headers, body):
            return await self.say(writer, 401)
        draw = self.chance.random()
        if draw < 0.10:
            return await self.say(writer, self.chance.choice((500, 502, 503, 504, 408)))
        if draw < 0.14:
            self.waits -= 1
            return await self.say(writer, 429, f"Retry-After: {1 if self.waits >= 0 else 0}\r\n")
        if draw < 0.17:
            return await self.say(writer, self.chance.choice((301, 302, 307, 308)), "Location: /stolen\r\n")
        if draw < 0.20:
            writer.transport.abort()
            return False
        if draw < 0.205:
            await asyncio.sleep(600)
        if draw < 0.21:
            for piece in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1000:
                writer.write(bytes([piece]))
                await writer.drain()
                await asyncio.sleep(0.1)
        if draw < 0.25 and path == "/wecom":
            return await self.say(writer, 200, content=b'{"errcode":-1,"errmsg":"system busy"}')
        self.take(path, body)
        if draw < 0.29:
            writer.transport.abort()  # taken, but never said so
            return False
        if draw < 0.295:
            await self.say(writer, 200, content=b"x" * 300_000)
            return False
        return await self.say(writer, 200, content=b'{"errcode":0,"errmsg":"ok"}')

    async def say(self, writer: asyncio.StreamWriter, status: int, headers: str = "", content: bytes = b"") -> bool:
        head = f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        return True


async def main() -> None:
    """Serve until the standard input ends."""
    hostile = Hostile(int(sys.argv[1]), sys.argv[2])
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
