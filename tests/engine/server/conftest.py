"""Real servers as child processes, shared over the session where tests leave them as they were."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

READY = re.compile(r"ready on (http://[^ ]+) ")


class LiveServer:
    """A running `serve` process with its address and admin token."""

    def __init__(self, arguments: list[str], runtime_dir: Path, environment: dict[str, str] | None = None) -> None:
        self.runtime_dir = runtime_dir
        env = {**os.environ, "INFRADOC_RUNTIME_DIR": str(runtime_dir), **(environment or {})}
        command = [sys.executable, "-P", "-m", "infradoc_engine", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.log: list[str] = []
        self._ready = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        assert self._ready.wait(90) and self.url, "the server did not start: " + "".join(self.log)
        self.port = int(self.url.rpartition(":")[2])
        self.http = httpx.Client(base_url=self.url, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := READY.search(line):
                self.url = found.group(1)
                self._ready.set()
        self._ready.set()

    @property
    def token_path(self) -> Path:
        return self.runtime_dir / f"engine-{self.port}.token"

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token_path.read_text().strip()}"}

    def admin(self, what: str) -> Any:
        answer = self.http.get(f"/admin/{what}", headers=self.auth)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def patch(self, version: object = "*", headers: dict[str, str] | None = None, **knobs: Any) -> httpx.Response:
        sent = {**self.auth, "if-match": str(version), **(headers or {})}
        return self.http.patch("/admin/config", json=knobs, headers=sent)

    def set(self, **knobs: Any) -> dict[str, Any]:
        answer = self.patch(**knobs)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        answer = self.http.post("/v1/completions", json={"prompt": prompt, "temperature": 0, **fields})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """(sample name, sorted labels) -> value, by the reference parser."""
        page = self.http.get("/metrics").text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics().get((name, tuple(sorted(labels.items()))), 0.0)

    def wait_idle(self, seconds: float = 30.0) -> None:
        """Wait until nothing runs or waits; fails when something still does after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            states = [r["state"] for r in self.admin("requests")["requests"]]
            if all(state == "finished" for state in states) and not self.metric("llm_requests_running"):
                return
            time.sleep(0.05)
        raise AssertionError(f"requests are still there: {self.admin('requests')}")

    def stop(self) -> int:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._reader.join(5)
            if self.process.stderr is not None:
                self.process.stderr.close()


StartServer = Callable[..., LiveServer]


@pytest.fixture(scope="session")
def start_server(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """start_server(*flags, environment={...}) -> a ready server; stopped at the end of the session."""
    started: list[LiveServer] = []

    def start(*flags: str, environment: dict[str, str] | None = None) -> LiveServer:
        arguments = [str(model_path) if "--model-by-path" in flags else "smollm2-135m", "--omp-num-threads", "1"]
        arguments += [flag for flag in flags if flag != "--model-by-path"]
        server = LiveServer(arguments, tmp_path_factory.mktemp("run"), environment)
        started.append(server)
        return server

    yield start
    for server in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop()


@pytest.fixture(scope="session")
def server(start_server: StartServer) -> LiveServer:
    """A server with room to spare: nothing is preempted."""
    return start_server(
        "--max-model-len", "512", "--kv-pool-tokens", "4096", "--max-num-seqs", "8", "--max-num-batched-tokens", "128"
    )


@pytest.fixture(scope="session")
def tight_server(start_server: StartServer) -> LiveServer:
    """A server whose pool of 14 blocks cannot hold what it admits."""
    return start_server(
        "--max-model-len", "128", "--kv-pool-tokens", "224", "--max-num-seqs", "8", "--max-num-batched-tokens", "128"
    )


@pytest.fixture
def in_background() -> Iterator[Callable[..., Any]]:
    """in_background(function, *arguments) -> future, on a pool of threads that ends with the test."""
    with ThreadPoolExecutor(24) as pool:
        yield pool.submit
