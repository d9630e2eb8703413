"""One request of a class: its body as a function of seed and index, and its measurement."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from infradoc.load.http import Connection, CutError, Pool, ProtocolError, Response
from infradoc.load.record import RequestRecord
from infradoc.load.spec import ClassSpec, Kind
from infradoc.load.text import document, prompt

PATHS: Mapping[Kind, str] = {
    "chat": "/v1/chat/completions",
    "completion": "/v1/completions",
    "tokenize": "/tokenize",
}
ERROR_TEXT_LIMIT = 300
COUNT = re.compile(rb'"count"\s*:\s*(\d+)')  # decoding 52,000 ids to learn their number would cost the client 4 ms


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to be sent."""

    path: str
    body: bytes
    prompt_words: int
    max_tokens: int | None


def prepare(spec: ClassSpec, model: str, seed: int, index: int) -> Prepared:
    """Build request `index` of a class: a function of its arguments only."""
    if spec.kind == "tokenize":
        text = document(seed, index, spec.bytes)
        data: dict[str, Any] = {"model": model, "prompt": text}
        return Prepared(PATHS["tokenize"], json.dumps(data, ensure_ascii=False).encode(), text.count(" ") + 1, None)
    source = Random(f"{seed}/{spec.name}/{index}/lengths")
    num_words = source.randint(spec.prompt_tokens.low, spec.prompt_tokens.high)
    max_tokens = source.randint(spec.max_tokens.low, spec.max_tokens.high)
    text = prompt(seed, spec.name, index, num_words, spec.shared_tokens)
    data = {"model": model, "max_tokens": max_tokens, "temperature": spec.temperature, "stream": spec.stream}
    if spec.kind == "chat":
        data["messages"] = [{"role": "user", "content": text}]
    else:
        data["prompt"] = text
    if spec.stream:
        data["stream_options"] = {"include_usage": True}
    if spec.ignore_eos:
        data["ignore_eos"] = True
    if spec.temperature > 0:
        data["seed"] = index
    return Prepared(PATHS[spec.kind], json.dumps(data).encode(), num_words, max_tokens)


class Sender:
    """Sends prepared requests and measures them; never raises for what the server does."""

    def __init__(self, pool: Pool, headers: Mapping[str, str], timeout: float) -> None:
        self._pool = pool
        self._headers = {"Content-Type": "application/json", "Accept": "*/*", **headers}
        self._timeout = timeout

    async def measure(self, spec: ClassSpec, prepared: Prepared, request_id: int) -> RequestRecord:
        """Send one request and wait for the end of its answer."""
        record = RequestRecord(
            request_id,
            prepared.path,
            time.time(),
            spec.name,
            max_tokens=prepared.max_tokens,
            prompt_words=prepared.prompt_words,
        )
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                await self._exchange(spec, prepared, record, began)
        except TimeoutError:
            fail(record, "timeout", f"Timed out: no complete answer within {self._timeout:g} s.")
        except ProtocolError as error:
            fail(record, "protocol", str(error))
        except (CutError, ConnectionResetError, BrokenPipeError) as error:
            fail(record, "cut", str(error) or "The server closed the connection before its answer was complete.")
        except OSError as error:
            fail(record, "connect", f"No connection: {error.strerror or error}.")
        record.e2e = time.perf_counter() - began
        return record

    async def _exchange(self, spec: ClassSpec, prepared: Prepared, record: RequestRecord, began: float) -> None:
        connection, response = await self._send(prepared)
        try:
            record.status = response.status
            if response.status != 200:
                body = await response.read()
                kind = "http_4xx" if response.status < 500 else "http_5xx"
                fail(record, kind, body[: ERROR_TEXT_LIMIT * 4].decode(errors="replace")[:ERROR_TEXT_LIMIT] or kind)
            elif spec.kind == "tokenize":
                read_count(await response.read(), record)
            elif spec.stream:
                await read_stream(response.parts(), record, began)
            else:
                read_answer(await response.read(), record, time.perf_counter() - began)
        except BaseException:
            connection.close()
            raise
        self._pool.give(connection)

    async def _send(self, prepared: Prepared) -> tuple[Connection, Response]:
        """Send on an idle connection; once more on a fresh one when the server had closed the idle one."""
        while True:
            connection, used = await self._pool.take()
            try:
                return connection, await connection.send(
                    "POST", self._pool.origin, prepared.path, self._headers, prepared.body
                )
            except (CutError, ConnectionResetError, BrokenPipeError):
                connection.close()
                if not used:
                    raise
            except BaseException:
                connection.close()
                raise


def fail(record: RequestRecord, kind: str, text: str) -> None:
    """Mark a record as failed."""
    record.error_kind, record.error = kind, text


def read_count(body: bytes, record: RequestRecord) -> None:
    """Take the number of tokens from the answer of /tokenize."""
    found = COUNT.search(body, 0, 256) or COUNT.search(body)
    if found is None:
        fail(record, "protocol", "The answer of /tokenize has no count.")
    else:
        record.prompt_tokens = int(found.group(1))


def read_answer(body: bytes, record: RequestRecord, elapsed: float) -> None:
    """Take reason and usage from an answer that was not streamed; its only event is the whole answer."""
    try:
        data = json.loads(body)
        record.finish_reason = data["choices"][0]["finish_reason"]
    except (ValueError, LookupError, TypeError, RecursionError):
        fail(record, "protocol", "The answer is no completion object.")
        return
    record.ttft = elapsed
    record.output_chunks = 1
    take_usage(data, record)


async def read_stream(parts: AsyncIterator[bytes], record: RequestRecord, began: float) -> None:
    """Measure a stream of server-sent events; an event counts when it carries text."""
    last = 0.0
    done = False
    async for payload, moment in events(parts):
        if payload == b"[DONE]":
            done = True
            continue
        data = decode(payload)
        if "error" in data:
            fail(record, "cut", str(data["error"])[:ERROR_TEXT_LIMIT])
        take_usage(data, record)
        if not carries_text(data, record):
            continue
        if record.ttft is None:
            record.ttft = moment - began
        else:
            record.itl.append(moment - last)
        last = moment
        record.output_chunks += 1
    if not done and record.error is None:
        raise CutError("The stream ended without [DONE].")


async def events(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, float]]:
    """Payloads of `data:` lines with the time at which their bytes were read."""
    rest = b""
    async for part in parts:
        moment = time.perf_counter()
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip(), moment


def decode(payload: bytes) -> dict[str, Any]:
    """One event as an object. Raises ProtocolError."""
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ProtocolError("A stream event is no JSON object.")
    return data


def carries_text(data: dict[str, Any], record: RequestRecord) -> bool:
    """Whether an event holds output text; takes the finish reason on the way."""
    found = False
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            raise ProtocolError("A stream event holds a choice that is no object.")
        if reason := choice.get("finish_reason"):
            record.finish_reason = str(reason)
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        found = found or bool(choice.get("text") or delta.get("content") or delta.get("reasoning_content"))
    return found


def take_usage(data: dict[str, Any], record: RequestRecord) -> None:
    """Token counts, where the server sends them."""
    usage = data.get("usage")
    if isinstance(usage, dict):
        record.prompt_tokens = usage.get("prompt_tokens", record.prompt_tokens)
        record.completion_tokens = usage.get("completion_tokens", record.completion_tokens)
