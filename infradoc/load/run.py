"""Run a load: all classes at once, each closed or open loop, until the time or the count is up."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, TextIO

from infradoc.errors import InfradocError
from infradoc.load.http import CutError, Origin, Pool, ProtocolError, is_plain_http
from infradoc.load.record import RequestRecord, said
from infradoc.load.send import Sender, prepare
from infradoc.load.spec import ClassSpec, LoadSpec
from infradoc.scheme import told, wrong_scheme

FIRST_LOOK_SECONDS = 10.0
TELL_SECONDS = 1.0
BACK_OFF_SECONDS = (0.2, 2.0)  # after a refused connection, doubling: a dead server must not be hammered


@dataclass(slots=True)
class LoadResult:
    """What a run measured. The measured window is [measured_from, measured_to] in Unix seconds."""

    url: str
    model: str
    spec: LoadSpec
    measured_from: float
    measured_to: float
    records: list[RequestRecord] = field(default_factory=list)
    unfinished: int = 0  # given up when the run was stopped; not counted as errors


class ClientFile:
    """The client measurements file: one line per finished request, written at once so that others can follow it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> ClientFile:
        if self._path is not None:
            try:
                self._file = self._path.open("a", encoding="utf-8")
            except OSError as error:
                raise InfradocError(f"Cannot write the client file {self._path}: {error.strerror}.") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, record: RequestRecord) -> None:
        """Append one record in one write."""
        if self._file is not None:
            self._file.write(record.to_line() + "\n")
            self._file.flush()


class Load:
    """The state of one run: what is in flight, what was measured, when to stop."""

    def __init__(self, spec: LoadSpec, model: str, sender: Sender, out: ClientFile) -> None:
        self.spec = spec
        self.model = model
        self.sender = sender
        self.out = out
        self.records: list[RequestRecord] = []
        self.stopping = asyncio.Event()
        self.in_flight = 0
        self.no_model: RequestRecord | None = None  # the answer that says that the model asked for is not there
        self._issued: dict[str, int] = {}
        self._ids = 0

    @property
    def begun(self) -> int:
        """Requests sent so far."""
        return self._ids

    def next_index(self, spec: ClassSpec) -> int | None:
        """Index of the class's next request; None when no more are to be started."""
        index = self._issued.get(spec.name, 0)
        if self.stopping.is_set() or (spec.count is not None and index >= spec.count):
            return None
        self._issued[spec.name] = index + 1
        return index

    async def one(self, spec: ClassSpec, index: int) -> RequestRecord:
        """Send request `index`, keep and write its record."""
        self._ids += 1
        self.in_flight += 1
        try:
            record = await self.sender.measure(spec, prepare(spec, self.model, self.spec.seed, index), self._ids)
        finally:
            self.in_flight -= 1
        self.records.append(record)
        self.out.write(record)
        if record.status == 404 and "model" in said(record).lower() and not any(other.ok for other in self.records):
            self.no_model = record
            self.stopping.set()
        return record

    async def closed_client(self, spec: ClassSpec, number: int) -> None:
        """One client that waits for its answer, thinks, and asks again; one request a slot if it has a pace.

        A late answer delays the next request only; a client that is a whole slot late skips what it cannot catch up.
        """
        pause, limit = BACK_OFF_SECONDS
        moments = Random(f"{self.spec.seed}/{spec.name}/{number}/pace")
        loop = asyncio.get_running_loop()
        slot = loop.time()
        while not self.stopping.is_set():
            await self.rest(slot + moments.uniform(0.0, spec.pace) - loop.time())
            if (index := self.next_index(spec)) is None:
                return
            record = await self.one(spec, index)
            refused = record.error_kind == "connect"
            await self.rest(pause if refused else spec.think)
            pause = min(pause * 2, limit) if refused else BACK_OFF_SECONDS[0]
            slot = max(slot + spec.pace, loop.time() - spec.pace)

    async def open_arrivals(self, spec: ClassSpec) -> None:
        """Poisson arrivals at the class's rate, whatever the server does.

        Each arrival's time is the sum of gaps drawn from the seed, so that a late start does not delay the next one.
        """
        source = Random(f"{self.spec.seed}/{spec.name}/arrivals")
        rate = spec.open or 1.0
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            while True:
                due += source.expovariate(rate)
                await self.rest(due - loop.time())
                if (index := self.next_index(spec)) is None:
                    return
                group.create_task(self.one(spec, index))

    async def rest(self, seconds: float) -> None:
        """Wait, but no longer than until the run stops."""
        if seconds > 0:
            try:
                await asyncio.wait_for(self.stopping.wait(), seconds)
            except TimeoutError:
                return

    def start(self, spec: ClassSpec) -> list[asyncio.Task[None]]:
        """The tasks of one class."""
        if spec.closed is None:
            return [asyncio.create_task(self.open_arrivals(spec))]
        return [asyncio.create_task(self.closed_client(spec, number)) for number in range(spec.closed)]


async def run_load(
    url: str,
    spec: LoadSpec,
    *,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    client_out: Path | None = None,
    stop: asyncio.Event | None = None,
    progress: Callable[[Load], None] | None = None,
) -> LoadResult:
    """Send the load and return what was measured.

    `model` is asked of the server when not given. Setting `stop` ends the run and gives up what is in flight; when
    the time is up instead, requests in flight are waited for, at most `spec.timeout` seconds.
    `progress` is called about once a second.
    Raises InfradocError when the server cannot be reached at the start, does not know the model, or the client file
    cannot be written.
    """
    pool = Pool(Origin.parse(url), tls)
    sender = Sender(pool, headers or {}, spec.timeout)
    try:
        name = model or await served_model(pool, headers or {})
        with ClientFile(client_out) as out:
            load = Load(spec, name, sender, out)
            began = time.time()
            unfinished = await drive(load, stop or asyncio.Event(), progress)
    finally:
        pool.close()
    if load.no_model is not None:
        where = f"{pool.origin.url}{load.no_model.path}"
        raise InfradocError(f"{where} does not know the model {name}: {said(load.no_model)}", "Give another --model.")
    ended = time.time()
    measured_to = min(ended, began + spec.duration) if spec.duration else ended
    measured_from = min(began + spec.warmup, measured_to)
    return LoadResult(pool.origin.url, name, spec, measured_from, measured_to, load.records, unfinished)


async def tell(load: Load, progress: Callable[[Load], None]) -> None:
    """Report about once a second until cancelled."""
    while True:
        progress(load)
        await asyncio.sleep(TELL_SECONDS)


async def drive(load: Load, stop: asyncio.Event, progress: Callable[[Load], None] | None = None) -> int:
    """Run all classes to their end; returns how many requests were given up."""
    told = [asyncio.create_task(tell(load, progress))] if progress is not None else []
    tasks = [task for spec in load.spec.classes for task in load.start(spec)]
    finished = asyncio.create_task(asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))
    stopped = asyncio.create_task(stop.wait())
    either: set[asyncio.Task[Any]] = {finished, stopped}
    try:
        await asyncio.wait(either, timeout=load.spec.duration, return_when=asyncio.FIRST_COMPLETED)
        load.stopping.set()
        if not stop.is_set():
            await asyncio.wait(either, timeout=load.spec.timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        unfinished = load.in_flight
        for task in (*either, *tasks, *told):
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return unfinished


async def served_model(pool: Pool, headers: Mapping[str, str]) -> str:
    """The first model of /v1/models. Raises InfradocError saying why the server cannot be used."""
    where = f"{pool.origin.url}/v1/models"
    try:
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            connection, _ = await pool.take()
            response = await connection.send("GET", pool.origin, "/v1/models", headers, b"")
            body = await response.read()
            pool.give(connection)
    except TimeoutError as error:
        if (other := await asyncio.to_thread(wrong_scheme, pool.origin.url)) is not None:
            raise InfradocError(*other) from error
        raise InfradocError(f"{where} gave no answer in {FIRST_LOOK_SECONDS:g} s.", "Is the server ready?") from error
    except ssl.SSLError as error:
        if is_plain_http(error):
            raise InfradocError(*told(pool.origin.url)) from error
        reason = error.reason or error
        raise InfradocError(f"No TLS connection to {where}: {reason}.", "Check the scheme or pass --ca.") from error
    except OSError as error:
        if (other := await asyncio.to_thread(wrong_scheme, pool.origin.url)) is not None:
            raise InfradocError(*other) from error
        raise InfradocError(
            f"No connection to {where}: {error.strerror or error}.", "Is the server running there?"
        ) from error
    except (CutError, ProtocolError) as error:
        if (other := await asyncio.to_thread(wrong_scheme, pool.origin.url)) is not None:
            raise InfradocError(*other) from error
        raise InfradocError(f"{where}: {error}", "Is this the URL of an OpenAI-compatible server?") from error
    if response.status in (401, 403):
        raise InfradocError(
            f"{where} answered {response.status}: not authorised.", "Name the key's variable with --api-key-env."
        )
    return model_in(body, response.status, where)


def model_in(body: bytes, status: int, where: str) -> str:
    """The first model id in an answer of /v1/models. Raises InfradocError."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InfradocError(
            f"{where} answered {status} without a model list.",
            "Pass --model, or the URL of an OpenAI-compatible server.",
        ) from error
