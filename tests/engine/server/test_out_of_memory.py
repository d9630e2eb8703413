"""Allocations that really fail under load, a server that goes on, and a memory share that ends it."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import httpx
import pytest


@pytest.fixture(scope="module")
def greedy(start_server: Any) -> Any:
    """The KV pool takes all but a sliver of the device: some 50 MiB are left for steps of up to 2048 tokens."""
    return start_server(
        *("--device-memory-bytes", "1800MiB", "--activation-profile", "trust", "--gpu-memory-utilization", "0.97"),
        *("--max-num-batched-tokens", "2048", "--max-model-len", "2048", "--max-num-seqs", "16"),
    )


def _burst(server: Any, in_background: Any) -> list[Any]:
    """Four prompts of 500 tokens at once: together they are one step."""

    def send(index: int) -> Any:
        body = {"prompt": list(range(100 + index, 600 + index)), "max_tokens": 2, "temperature": 0}
        return server.http.post("/v1/completions", json=body)

    return [future.result() for future in [in_background(send, index) for index in range(4)]]


def test_the_allocator_refuses_and_a_smaller_share_ends_it(greedy: Any, in_background: Any) -> None:
    account = greedy.metrics()
    assert account["llm_device_memory_bytes", (("part", "activations"),)] == 0  # nothing was set aside
    for _ in range(5):
        refused = [answer for answer in _burst(greedy, in_background) if answer.status_code != 200]
        if refused:
            break
    assert refused and {answer.status_code for answer in refused} == {503}
    error = refused[0].json()["error"]
    assert error["code"] == "out_of_memory" and "the allocator refused" in error["message"]
    assert greedy.metric("llm_oom_total") >= 1

    for _ in range(3):  # a failed step gives back what it took: small ones go on
        assert greedy.http.get("/health").status_code == 200
        assert greedy.complete("The capital of France is", max_tokens=4)["usage"]["completion_tokens"] == 4
        refused += [answer for answer in _burst(greedy, in_background) if answer.status_code != 200]
    ooms = greedy.metric("llm_oom_total")
    before = greedy.metric("llm_kv_pool_tokens")
    greedy.set(gpu_memory_utilization=0.8)
    assert greedy.metric("llm_kv_pool_tokens") < 0.8 * before
    for _ in range(2):
        assert [answer.status_code for answer in _burst(greedy, in_background)] == [200] * 4
    assert greedy.metric("llm_oom_total") == ooms
    assert greedy.metric("llm_requests_finished_total", reason="error") == len(refused)
    assert greedy.admin("blocks")["integrity"] == "ok"


def test_a_full_device_still_answers_who_asks_after_it(start_server: Any, in_background: Any) -> None:
    """The pool has left less than libraries take at their first steps: from then on every step fails, for minutes.

    An operator reads /metrics, /health and /admin meanwhile, with a new connection each time, and documents of 0.4 to
    1.6 MB are tokenized in the server's own process: a library that ends the process when it is refused memory.
    """
    server = start_server(
        *("--device-memory-bytes", "3000MB", "--activation-profile", "trust", "--gpu-memory-utilization", "0.95"),
        *("--max-num-batched-tokens", "4096", "--max-model-len", "640", "--max-num-seqs", "80"),
        *("--tokenizer-workers", "0"),
    )
    stop = threading.Event()

    def load(index: int) -> set[int]:
        codes, chance = set(), random.Random(index)
        while not stop.is_set():
            length = chance.randrange(400, 500) if index % 3 == 0 else chance.randrange(16, 32)
            prompt = [chance.randrange(100, 40_000) for _ in range(length)]  # no prefix twice
            body = {"prompt": prompt, "max_tokens": 24, "ignore_eos": True}
            codes.add(server.http.post("/v1/completions", json=body).status_code)
        return codes

    clients = [in_background(load, index) for index in range(6)]
    try:
        deadline = time.monotonic() + 90
        while server.metric("llm_oom_total") < 20 and time.monotonic() < deadline:
            time.sleep(0.5)
        for number in range(60):
            if number % 10 == 0:
                document = {"prompt": "some words of a document " * 16_000 * (1 + number // 20)}
                assert httpx.post(server.url + "/tokenize", json=document, timeout=30).status_code in (200, 503)
            for path in ("/metrics", "/health", "/admin/requests", "/admin/blocks"):
                answer = httpx.get(server.url + path, headers=server.auth, timeout=30)
                assert answer.status_code == 200 or (path == "/health" and answer.status_code == 503)
    finally:
        stop.set()
    assert set().union(*(client.result() for client in clients)) <= {200, 503}  # an answer each, of whatever kind
    assert server.metric("llm_oom_total") >= 20


def test_growth_without_room_is_the_allocator_s_word_alone(greedy: Any) -> None:
    """Nothing is set aside under trust, so only the kernel says no."""
    answer = greedy.patch(kv_pool_tokens=200_000)
    assert answer.status_code == 409 and "the allocator refused" in answer.json()["error"]["message"]


def test_a_measured_engine_keeps_what_a_step_needs(start_server: Any) -> None:
    server = start_server(
        *("--device-memory-bytes", "1100MiB", "--max-model-len", "512", "--kv-pool-tokens", "1024"),
        *("--max-num-seqs", "8", "--max-num-batched-tokens", "128"),
    )
    hints = server.admin("config")["hints"]
    free = hints["free_memory_bytes"] // hints["kv_bytes_per_token"]
    wanted = 1024 + free + 2000
    refusal = server.patch(kv_pool_tokens=wanted)
    assert refusal.status_code == 409
    fits = int(refusal.json()["error"]["message"].rpartition("at most ")[2].split()[0])
    assert 1024 < fits < wanted
    larger_step = server.patch(max_num_batched_tokens=60_000)
    assert larger_step.status_code == 409
    assert "max_num_batched_tokens cannot be 60000: a step would take" in larger_step.json()["error"]["message"]
    nearest = int(larger_step.json()["error"]["message"].rpartition("at most ")[2].split()[0])
    assert server.set(max_num_batched_tokens=nearest)["knobs"]["max_num_batched_tokens"]["value"] == nearest
    assert server.patch(kv_pool_tokens=fits).status_code == 409  # the larger step took that room
    assert server.complete("Hello", max_tokens=2)["usage"]["completion_tokens"] == 2
