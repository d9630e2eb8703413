"""A pool that is too small preempts, says why, and grows while the load goes on, with the tokens unchanged."""

from __future__ import annotations

import signal
from typing import Any


def _load(server: Any, in_background: Any) -> list[Any]:
    prompts = [f"Story number {index}: once upon a time there was" for index in range(8)]
    return [in_background(server.complete, prompt, max_tokens=26, ignore_eos=True) for prompt in prompts]


def _texts(futures: list[Any]) -> list[str]:
    return [future.result()["choices"][0]["text"] for future in futures]


def test_growth_under_load_ends_preemption_and_keeps_the_tokens(tight_server: Any, in_background: Any) -> None:
    server = tight_server
    before = _texts(_load(server, in_background))
    preemptions = server.metric("llm_preemptions_total", reason="kv_full")
    assert preemptions > 0
    assert server.metric("llm_recomputed_tokens_total") > 0
    _check_reasons(server)

    running = _load(server, in_background)
    while not server.metric("llm_requests_running"):
        pass
    grown = server.set(kv_pool_tokens=1536)
    assert grown["knobs"]["kv_pool_tokens"]["value"] == 1536
    assert _texts(running) == before
    blocks = server.admin("blocks")
    assert blocks["num_blocks"] == 96 and blocks["integrity"] == "ok"
    assert sum(blocks["ledger"].values()) == 96 == sum(length for _, length in blocks["runs"])
    assert server.metric("llm_kv_pool_tokens") == 1536

    after_growth = server.metric("llm_preemptions_total", reason="kv_full")
    assert _texts(_load(server, in_background)) == before
    assert server.metric("llm_preemptions_total", reason="kv_full") == after_growth


def _check_reasons(server: Any) -> None:
    requests = server.admin("requests")["requests"]
    ids = {request["id"] for request in requests}
    losses = [loss for request in requests for loss in request["preemptions"]]
    assert losses and all(loss["reason"] == "kv_full" for loss in losses)
    assert all(loss["for_request"] in ids and loss["lost_tokens"] > 0 for loss in losses)
    now = server.admin("requests")["now"]
    assert all(now - 120 < loss["time"] <= now for loss in losses)
    lost = [request for request in requests if request["preemptions"]]
    assert all(request["stages"]["preempted"] > 0 for request in lost)


def test_growth_beyond_memory_is_refused_and_the_pool_stays_whole(start_server: Any) -> None:
    server = start_server(
        *("--max-model-len", "128", "--kv-pool-tokens", "256", "--max-num-seqs", "4"),
        *("--max-num-batched-tokens", "64", "--device-memory-bytes", "1200MB"),
    )
    first = server.complete("The capital of France is", max_tokens=6)["choices"][0]["text"]
    answer = server.patch(kv_pool_tokens=100_000)  # 4.6 GB
    assert answer.status_code == 409, answer.text
    assert "kv_pool_tokens stays at 256" in answer.json()["error"]["message"]
    assert server.admin("blocks")["num_blocks"] == 16
    assert server.complete("The capital of France is", max_tokens=6)["choices"][0]["text"] == first
    assert server.http.get("/health").status_code == 200
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 0
