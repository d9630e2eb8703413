"""Shared by the tests of PromQL: frames, random series, and a real Prometheus to compare with."""

from __future__ import annotations

import http.client
import itertools
import json
import math
import random
import shutil
import socket
import struct
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest
from hypothesis import settings

from infradoc_rules.model import Series
from infradoc_rules.promql import STALE_NAN

# A busy machine is no fault of the code: no test here has a time limit of its own.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


class Frame:
    """The only part of a SignalFrame that evaluation may use."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._by_name: dict[str, list[Series]] = {}
        for one in series:
            self._by_name.setdefault(one.name, []).append(one)

    def select(self, name: str) -> Sequence[Series]:
        return self._by_name.get(name, [])


@pytest.fixture(scope="session")
def make_frame() -> Callable[..., Frame]:
    """make_frame(series, ...) gives a frame of them."""
    return lambda *series: Frame(series)


def _ticks(rng: random.Random, start: float, seconds: int, irregular: bool) -> list[float]:
    """Once a second; or at mixed intervals with one gap longer than the lookback."""
    if not irregular:
        return [start + second for second in range(seconds)]
    steps = itertools.accumulate(rng.choice((0.25, 1.0, 1.5, 4.999, 15.0, 31.0)) for _ in range(seconds))
    gap = rng.uniform(100, 500)
    times = [round(start + step + (330 if step > gap else 0), 3) for step in steps]
    return [at for at in times if at < start + seconds]


def _counter(rng: random.Random, count: int) -> list[float]:
    """Grows, with resets."""
    value, values = rng.choice((0.0, 3.0, 1e6)), []
    for _ in range(count):
        value = float(rng.randrange(3)) if rng.random() < 0.02 else value + rng.choice((0, 0, 1, 2, 17.25))
        values.append(value)
    return values


def _values(rng: random.Random, name: str, number: int, count: int) -> list[float]:
    """Values in the manner of the metric `name`; `number` tells its series apart."""
    noise = [rng.gauss(50, 30) for _ in range(count)]
    poison: tuple[float, ...] = ()
    match name:
        case "requests_total":
            return _counter(rng, count)
        case "errors_total":
            noise, poison, share = _counter(rng, count), (STALE_NAN,), 0.01
        case "wild":
            poison, share = (math.nan, math.inf, -math.inf, 0.0, -0.0), 0.05 * (number % 3)
        case "flaky":
            poison, share = (STALE_NAN, math.nan), 0.1
        case "steady":
            return [float(number % 5)] * count
        case "cancelling":  # a plain sum loses the ones
            return [(1.0, 1e100, 1.0, -1e100)[place % 4] for place in range(count)]
        case "extreme":
            return [value * 10.0 ** rng.choice((-300, -12, 0, 12, 300)) for value in noise]
    return [rng.choice(poison) if poison and rng.random() < share else value for value in noise]


def _series(rng: random.Random, name: str, labels: dict[str, str], times: list[float], values: list[float]) -> Series:
    """In one of the two forms a frame may hold, with digits below Prometheus' milliseconds."""
    noisy = [at + rng.choice((0.0, 0.0003, -0.0002)) for at in times]
    if rng.random() < 0.5:
        arrays: Any = (np.array(noisy), np.array(values))
        return Series(name, labels, *arrays)
    return Series(name, labels, noisy, values)


def _buckets(
    rng: random.Random, labels: dict[str, str], times: list[float], bounds: str, share: float
) -> Iterator[Series]:
    """Cumulative counts per bound; with a share of samples lost, so that counts of one moment decrease."""
    below = [0.0] * len(times)
    for bound in bounds.split(","):
        growth = itertools.accumulate(rng.randrange(4) for _ in times)
        below = [low + more for low, more in zip(below, growth, strict=True)]
        kept = [pair for pair in zip(times, below, strict=True) if rng.random() >= share]
        yield _series(rng, "latency_bucket", {**labels, "le": bound}, [at for at, _ in kept], [v for _, v in kept])


def _random_series(rng: random.Random, start: float, seconds: int) -> list[Series]:
    made: list[Series] = []
    places = [{"job": job, "instance": f"{job}-{n}"} for job in ("api", "batch", "db") for n in range(8)]
    names = ["requests_total", "errors_total", "load", "wild", "sparse", "flaky", "steady", "extreme", "cancelling"]
    for (number, place), name in itertools.product(enumerate(places), names):
        labels = place | ({"code": rng.choice(("500", "503", "é\n"))} if name == "errors_total" else {})
        irregular = name == "sparse" or (name.endswith("_total") and number % 3 == 0)
        times = _ticks(rng, start, seconds, irregular)
        made.append(_series(rng, name, labels, times, _values(rng, name, number, len(times))))
    scrapes = _ticks(rng, start, seconds, irregular=False)[::5]
    for number, place in enumerate(places[::4]):
        made += _buckets(rng, place, scrapes, "0.1,0.25,0.5,1,2.5,+Inf", share=0.0 if number % 2 else 0.2)
    for kind in ("0.1,1", "+Inf", "1,1.0,1e0,+Inf", "-1,0,5,Inf", "low,,1_0,1__0,1,+Inf", " 1,2,+Inf"):
        made += _buckets(rng, {"job": "odd", "instance": kind}, scrapes, kind, share=0.0)
    for place in places[:-2]:
        labels = {**place, "version": f"v{rng.randrange(3)}"}
        made.append(_series(rng, "build_info", labels, [start, start + 400], [1.0, 1.0]))
    made.append(_series(rng, "once", {}, [start + 100], [4.0]))
    return made


@pytest.fixture(scope="session")
def random_series() -> Callable[[random.Random, float, int], list[Series]]:
    """random_series(rng, start, seconds): at least 200 series of all kinds, within that time."""
    return _random_series


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _time_series(series: Series) -> bytes:
    """A prometheus.TimeSeries message; values as their 8 bytes, so that NaN payloads arrive as they are."""
    labels = sorted({"__name__": series.name, **series.labels}.items())
    out = b"".join(_field(1, _field(1, key.encode()) + _field(2, text.encode())) for key, text in labels)
    for at, value in zip(series.times, series.values, strict=True):
        stamp = _varint(round(float(at) * 1000))
        out += _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + stamp)
    return out


class Prometheus:
    """A running server: series in by remote write, answers out by the query API."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def _request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
        self._connection.request(method, path, body, dict(headers or {}))
        response = self._connection.getresponse()
        return response.status, response.read()

    def is_ready(self) -> bool:
        try:
            return bool(self._request("GET", "/-/ready")[0] == 200)
        except OSError:
            self._connection.close()
            return False

    def write(self, series: Sequence[Series]) -> None:
        request = b"".join(_field(1, _time_series(one)) for one in series)
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        status, body = self._request("POST", "/api/v1/write", bytes(cramjam.snappy.compress_raw(request)), headers)
        assert status == 204, body

    def query(self, text: str, at: float) -> dict[str, Any]:
        """The API's answer at Unix time `at`: status, then data or errorType and error."""
        form = urllib.parse.urlencode({"query": text, "time": repr(at)}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer: dict[str, Any] = json.loads(self._request("POST", "/api/v1/query", form, headers)[1])
        return answer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus on loopback, empty, scraping nothing."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.fail("The prometheus binary is missing; install it with `apt-get install prometheus`.")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=60)
    if "version 2." not in version.stdout + version.stderr:
        pytest.fail(f"{binary} is no Prometheus 2.x, whose dialect is the one compared with; Debian's package is 2.42.")
    home: Path = tmp_path_factory.mktemp("prometheus")
    (home / "empty.yml").write_text("")
    port = _free_port()
    options = {
        "config.file": home / "empty.yml",
        "storage.tsdb.path": home / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "log.level": "warn",
    }
    command = [binary, "--web.enable-remote-write-receiver", *(f"--{key}={value}" for key, value in options.items())]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        deadline = time.monotonic() + 60
        while not server.is_ready():
            alive = process.poll() is None and time.monotonic() < deadline
            assert alive, f"Prometheus did not start: {(home / 'log').read_text()[-2000:]}"
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)
