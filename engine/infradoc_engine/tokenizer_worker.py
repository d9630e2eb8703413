"""A tokenizer process: text frames in on stdin, token frames out on stdout.

Started by exec of a fresh interpreter, never forked. It imports the standard library and `tokenizers` alone: loading
torch here would cost seconds and hundreds of megabytes a worker. It renders the JSON array of ids as well, because for
a 400 KB document that rendering would hold the server's GIL for longer than everything else in /tokenize.

Frame: 4 bytes length of the head, 4 bytes length of the payload (both little-endian), head as JSON, payload.
First frame in: head {}, payload the tokenizer as JSON; answered by head {"ready": true}.
Then: head {"add_special", "render"}, payload UTF-8 text; answered by head {"count", "start", "end"} (monotonic
seconds of the encode) and as payload the ids: a JSON array when `render` is true, else 32-bit little-endian integers.
A text that cannot be encoded is answered by head {"error"}.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from array import array
from typing import Any, BinaryIO

HEADER = struct.Struct("<II")


def render_ids(ids: list[int]) -> bytes:
    """The ids as a JSON array without spaces."""
    return json.dumps(ids, separators=(",", ":")).encode()


def pack_ids(ids: list[int]) -> bytes:
    """The ids as 32-bit little-endian integers."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(payload: bytes) -> list[int]:
    packed = array("I")
    packed.frombytes(payload)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def pack_frame(head: dict[str, Any], payload: bytes = b"") -> bytes:
    encoded = json.dumps(head).encode()
    return HEADER.pack(len(encoded), len(payload)) + encoded + payload


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame, or None at the end of the stream (the server is gone)."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    head_length, payload_length = HEADER.unpack(header)
    head, payload = stream.read(head_length), stream.read(payload_length)
    if len(head) < head_length or len(payload) < payload_length:
        return None
    decoded = json.loads(head)
    assert isinstance(decoded, dict)
    return decoded, payload


def answer(tokenizer: Any, head: dict[str, Any], payload: bytes) -> bytes:
    """Encode one text; `tokenizer` is a tokenizers.Tokenizer."""
    start = time.monotonic()
    try:
        encoding = tokenizer.encode_batch([payload.decode()], add_special_tokens=bool(head["add_special"]))[0]
    except Exception as error:  # one text must not end the worker; the server tells the client
        return pack_frame({"error": f"{type(error).__name__}: {error}"})
    ids = encoding.ids
    end = time.monotonic()
    body = render_ids(ids) if head["render"] else pack_ids(ids)
    return pack_frame({"count": len(ids), "start": start, "end": end}, body)


def main() -> None:
    # Ctrl-C in a terminal reaches the whole process group; the server decides when its workers end (end of stdin).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one worker is one core
    from tokenizers import Tokenizer

    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints must not break the frames
    first = read_frame(source)
    if first is None:
        return
    tokenizer = Tokenizer.from_str(first[1].decode())
    sink.write(pack_frame({"ready": True}))
    sink.flush()
    while (frame := read_frame(source)) is not None:
        sink.write(answer(tokenizer, *frame))
        sink.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
