"""tokenizer_workers switched while documents are posted: no document is lost, every count is right."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx


def _documents() -> list[tuple[str, int]]:
    """Texts with a token count that is known without a tokenizer: ' hello' is one token."""
    return [("hello" + " hello" * (size - 1), size) for size in (1, 50, 5_000, 40_000)]


def _post_until(server: Any, deadline: float) -> int:
    posted = 0
    with httpx.Client(base_url=server.url, timeout=60) as http:
        while time.monotonic() < deadline:
            for text, count in _documents():
                answer = http.post("/tokenize", json={"prompt": text})
                assert answer.status_code == 200, answer.text
                assert answer.json()["count"] == len(answer.json()["tokens"]) == count
                posted += 1
    return posted


def _pids(server: Any) -> list[int]:
    return [
        int(dict(labels)["pid"])
        for (name, labels) in server.metrics()
        if name == "proc_resident_memory_bytes" and dict(labels)["role"] == "tokenizer"
    ]


def test_switching_under_load_loses_nothing(server: Any, in_background: Any) -> None:
    posting = [in_background(_post_until, server, time.monotonic() + 6) for _ in range(3)]
    for workers in (1, 0, 2, 1, 0):
        assert server.set(tokenizer_workers=workers)["knobs"]["tokenizer_workers"]["value"] == workers
        assert len(_pids(server)) >= workers
        time.sleep(0.3)
    assert sum(future.result() for future in posting) > 20
    deadline = time.monotonic() + 5
    while _pids(server):
        assert time.monotonic() < deadline, "retired workers do not end"
        time.sleep(0.05)


def test_killed_worker_is_replaced(server: Any, in_background: Any) -> None:
    server.set(tokenizer_workers=1)
    try:
        posting = [in_background(_post_until, server, time.monotonic() + 4) for _ in range(2)]
        time.sleep(0.5)
        (victim,) = _pids(server)
        os.kill(victim, signal.SIGKILL)
        assert sum(future.result() for future in posting) > 4
        (replacement,) = _pids(server)
        assert replacement != victim
        assert any(f"worker {victim} ended unexpectedly" in line for line in server.log)
    finally:
        server.set(tokenizer_workers=0)


def test_worker_holds_no_torch(server: Any) -> None:
    server.set(tokenizer_workers=1)
    try:
        (pid,) = _pids(server)
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "tokenizers" in maps and "torch" not in maps
        assert server.http.post("/tokenize", json={"prompt": "hello hello"}).json()["tokens"] == [28120, 33662]
    finally:
        server.set(tokenizer_workers=0)


def test_completions_use_the_workers_too(server: Any) -> None:
    alone = server.complete("The capital of France is", max_tokens=4)["choices"][0]["text"]
    server.set(tokenizer_workers=1)
    try:
        assert server.complete("The capital of France is", max_tokens=4)["choices"][0]["text"] == alone
        bad = server.http.post("/v1/completions", content=b'{"prompt": "\\ud800", "max_tokens": 1}')
        assert bad.status_code == 400
    finally:
        server.set(tokenizer_workers=0)
