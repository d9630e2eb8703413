"""Changes that need a drain, under load: every request gets the tokens that it would have got without."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest


@pytest.fixture(scope="module")
def drained(start_server: Any) -> Any:
    """Its drains let nothing finish: what runs is preempted and computed again."""
    return start_server(
        *("--max-model-len", "256", "--kv-pool-tokens", "2048", "--max-num-seqs", "8", "--drain-seconds", "0.05"),
        *("--max-num-batched-tokens", "128"),
    )


def _load(server: Any, in_background: Any) -> list[Any]:
    prompts = [f"Story number {index}: once upon a time there was" for index in range(8)]
    return [in_background(server.complete, prompt, max_tokens=24, ignore_eos=True) for prompt in prompts]


def _texts(futures: list[Any]) -> list[str]:
    return [future.result()["choices"][0]["text"] for future in futures]


def _post(server: Any, path: str, **body: Any) -> Any:
    return server.http.post(f"/admin/{path}", json=body, headers=server.auth)


@pytest.mark.parametrize(
    ("change", "pool", "block_size"),
    [
        ({"block_size": 32}, 2048, 32),
        ({"block_size": 8, "max_model_len": 128}, 2048, 8),
        ({"kv_pool_tokens": 512}, 512, 8),
        ({"block_size": 16, "kv_pool_tokens": 1024, "max_model_len": 256}, 1024, 16),
        ({"kv_pool_tokens": 2048}, 2048, 16),
    ],
)
def test_no_request_is_lost_and_no_token_changes(
    drained: Any, in_background: Any, change: dict[str, int], pool: int, block_size: int
) -> None:
    server = drained
    expected = _texts(_load(server, in_background))
    running = _load(server, in_background)
    while not server.metric("llm_requests_running"):
        time.sleep(0.01)
    knobs = server.set(**change)["knobs"]
    assert knobs["kv_pool_tokens"]["value"] == pool and knobs["block_size"]["value"] == block_size
    assert _texts(running) == expected
    blocks = server.admin("blocks")
    assert blocks["block_size"] == block_size and blocks["num_blocks"] * block_size == pool
    assert blocks["integrity"] == "ok" and sum(blocks["ledger"].values()) == blocks["num_blocks"]
    metrics = server.metrics()
    assert metrics["llm_kv_pool_tokens", ()] == pool
    assert metrics["llm_kv_block_size_tokens", ()] == block_size
    assert metrics["llm_engine_draining", ()] == 0


def test_a_block_size_taken_back_brings_the_whole_pool_back(drained: Any) -> None:
    """256 does not divide 2000: the undo of a block size must not leave a smaller pool than it found."""

    def pool_at(**change: int) -> int:
        value: int = drained.set(**change)["knobs"]["kv_pool_tokens"]["value"]
        return value

    assert pool_at(kv_pool_tokens=2000) == 2000
    assert [pool_at(block_size=size) for size in (256, 7, 16)] == [1792, 1995, 2000]
    assert pool_at(block_size=256) == 1792 and pool_at(kv_pool_tokens=1536) == 1536
    assert pool_at(block_size=16) == 1536  # the newer wish counts
    assert pool_at(kv_pool_tokens=2048) == 2048


def test_what_a_drain_takes_away_says_so(drained: Any) -> None:
    assert drained.metric("llm_preemptions_total", reason="resize") > 0
    lost = [loss for request in drained.admin("requests")["requests"] for loss in request["preemptions"]]
    assert any(loss["reason"] == "resize" and loss["mode"] == "recompute" for loss in lost)


def test_a_refused_drain_gives_the_pool_back(drained: Any, in_background: Any) -> None:
    running = _load(drained, in_background)
    before = drained.admin("config")
    answer = drained.patch(gpu_memory_utilization=0.01)
    assert answer.status_code == 409 and "The lowest gpu_memory_utilization" in answer.json()["error"]["message"]
    after = drained.admin("config")
    assert after["knobs"] == before["knobs"] and after["version"] == before["version"]
    assert all(future.result()["usage"]["completion_tokens"] == 24 for future in running)
    assert drained.http.get("/health").json() == {"status": "ok"}


def test_a_change_that_would_lose_a_queued_request_is_refused(drained: Any, in_background: Any) -> None:
    try:
        assert _post(drained, "drain", seconds=0).json()["draining"] is True
        queued = in_background(drained.complete, list(range(100, 300)), max_tokens=2)
        while not drained.metric("llm_requests_waiting"):
            time.sleep(0.01)
        answer = drained.patch(max_model_len=128)
        assert answer.status_code == 409 and "a request of 200 tokens is under way" in answer.text
        assert drained.admin("config")["knobs"]["max_model_len"]["value"] == 256
        assert drained.metric("llm_engine_draining") == 1  # the operator's pause outlives the refused change
    finally:
        _post(drained, "drain", resume=True)
    assert queued.result()["usage"]["completion_tokens"] == 2


def test_operators_can_pause_and_resume(drained: Any, in_background: Any) -> None:
    try:
        held = _post(drained, "drain", seconds=5)
        assert held.json() == {"draining": True, "running": 0, "waiting": 0}
        assert drained.http.get("/health").json() == {"status": "ok", "draining": True}
        waiting = in_background(drained.complete, "Hello", max_tokens=2)
        while not drained.metric("llm_requests_waiting"):
            time.sleep(0.01)
        assert not waiting.done()
    finally:
        resumed = _post(drained, "drain", resume=True)
    assert resumed.json()["draining"] is False
    assert waiting.result()["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "3601", ""])
@pytest.mark.parametrize("place", ["header", "query"])
def test_a_patience_that_makes_no_sense_is_422(drained: Any, seconds: str, place: str) -> None:
    sent = {**drained.auth, "if-match": "*"} | ({"x-infradoc-drain-seconds": seconds} if place == "header" else {})
    query = {"drain_seconds": seconds} if place == "query" else {}
    answer = drained.http.patch("/admin/config", json={"block_size": 8}, headers=sent, params=query)
    assert answer.status_code == 422 and "give 0 to 3600 seconds" in answer.json()["error"]["message"]
    assert drained.admin("config")["knobs"]["block_size"]["value"] == 16


def test_what_cannot_be_is_refused_before_the_drain(drained: Any, in_background: Any) -> None:
    before = drained.metric("llm_preemptions_total", reason="resize")
    running = in_background(drained.complete, "Once upon a time", max_tokens=60, ignore_eos=True)
    while not drained.metric("llm_requests_running"):
        time.sleep(0.01)
    answer = drained.patch(block_size=32, kv_pool_tokens=None)
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert message == "kv_pool_tokens cannot be unset while serving; restart without --kv-pool-tokens."
    assert drained.admin("config")["knobs"]["block_size"]["value"] == 16
    assert running.result()["usage"]["completion_tokens"] == 60
    assert drained.metric("llm_preemptions_total", reason="resize") == before


@pytest.mark.parametrize(
    "body",
    [
        *('{"seconds": -1}', '{"seconds": "soon"}', '{"minutes": 1}', '{"seconds": true}', '{"seconds": [1]}'),
        *('{"seconds": NaN}', '{"seconds": Infinity}', '{"seconds": "nan"}', f'{{"seconds": {"9" * 400}}}'),
        *('{"resume": "true"}', '{"resume": 1}', '{"resume": null}', f'{{"{"x" * 1000}": 1}}'),
    ],
)
def test_a_drain_that_makes_no_sense_is_422(drained: Any, body: str) -> None:
    answer = drained.http.post("/admin/drain", content=body, headers=drained.auth)
    assert answer.status_code == 422 and len(answer.json()["error"]["message"]) < 200
    assert drained.metric("llm_engine_draining") == 0


def test_a_pause_that_still_waits_can_be_ended(drained: Any, in_background: Any) -> None:
    running = in_background(drained.complete, "Once upon a time", max_tokens=200, ignore_eos=True)
    while not drained.metric("llm_requests_running"):
        time.sleep(0.01)
    paused = in_background(_post, drained, "drain", seconds=3600)
    while not drained.metric("llm_engine_draining"):
        time.sleep(0.01)
    assert _post(drained, "drain", resume=True).json()["draining"] is False
    assert not running.done() and paused.result().status_code == 200
    assert running.result()["usage"]["completion_tokens"] == 200


def test_the_patience_of_one_drain_can_be_given(drained: Any, in_background: Any) -> None:
    before = drained.metric("llm_preemptions_total", reason="resize")
    running = in_background(drained.complete, "Once upon a time", max_tokens=12, ignore_eos=True)
    while not drained.metric("llm_requests_running"):
        time.sleep(0.01)
    assert drained.patch(headers={"x-infradoc-drain-seconds": "60"}, block_size=32).status_code == 200
    assert running.done() or running.result(5)
    assert drained.metric("llm_preemptions_total", reason="resize") == before
    assert drained.patch(headers={"x-infradoc-drain-seconds": "later"}, block_size=16).status_code == 422
    drained.set(block_size=16)


def test_a_server_told_to_end_gives_its_drains_up_in_a_sentence(start_server: Any, in_background: Any) -> None:
    server = start_server("--max-model-len", "4096", "--max-num-seqs", "2")
    running = in_background(  # far longer than a server that ends lets requests go on
        server.http.post, "/v1/completions", json={"prompt": "Once", "max_tokens": 4000, "ignore_eos": True}
    )
    while not server.metric("llm_requests_running"):
        time.sleep(0.01)
    changing = in_background(server.patch, headers={"x-infradoc-drain-seconds": "60"}, block_size=32)
    while not server.metric("llm_engine_draining"):
        time.sleep(0.01)
    next_one = in_background(_post, server, "defragment")  # waits for its turn, which may still come
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 0
    answers = [future.result() for future in (running, changing, next_one)]
    # The end aborts what runs, which may let a waiting change through at the last moment.
    assert answers[0].status_code == 503 and {answer.status_code for answer in answers} <= {200, 503}
    for answer in answers:
        assert answer.status_code == 200 or "shutting down" in answer.json()["error"]["message"]
    server.stop()
    assert [line for line in server.log if not line.startswith("infradoc serve: ")] == []


def test_a_policy_that_cuts_is_mended_in_one_patch(start_server: Any) -> None:
    server = start_server("--max-model-len", "64", "--truncation-policy", "left", "--max-num-seqs", "4")
    prompt = list(range(100, 200))
    assert server.complete(prompt, max_tokens=8)["infradoc"]["truncated"]["kept_tokens"] == 56
    knobs = server.set(max_model_len=1024, truncation_policy="reject")["knobs"]
    assert knobs["max_model_len"]["value"] == 1024
    assert knobs["kv_pool_tokens"] == knobs["kv_pool_tokens"] | {"value": 4096, "origin": "default"}  # it follows
    answer = server.complete(prompt, max_tokens=8)
    assert "infradoc" not in answer and answer["usage"]["prompt_tokens"] == 100
    assert server.complete(list(range(100, 1100)), max_tokens=2)["usage"]["prompt_tokens"] == 1000
    lower = server.set(max_model_len=512)["knobs"]
    assert lower["kv_pool_tokens"]["value"] == 4096
    refused = server.http.post("/v1/completions", json={"prompt": list(range(100, 1100)), "max_tokens": 2})
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"
