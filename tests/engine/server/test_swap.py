"""Preemption by swap: with the real model, the tokens are those of a pool with room to spare."""

from __future__ import annotations

from typing import Any


def _texts(server: Any, in_background: Any) -> list[str]:
    prompts = [f"Chapter {index}: the sea was calm and the" for index in range(8)]
    futures = [in_background(server.complete, prompt, max_tokens=30, ignore_eos=True) for prompt in prompts]
    return [future.result()["choices"][0]["text"] for future in futures]


def test_swapped_requests_go_on_with_their_own_kv(start_server: Any, in_background: Any) -> None:
    server = start_server(
        *("--max-model-len", "128", "--kv-pool-tokens", "1024", "--max-num-seqs", "8"),
        *(
            "--max-num-batched-tokens",
            "128",
            "--no-prefix-caching",
            "--preemption-mode",
            "swap",
            "--swap-space",
            "64MiB",
        ),
    )
    host = server.admin("blocks")["host"]
    assert host == {"num_blocks": 91, "free": 91, "usage_ratio": 0.0, "swapped_requests": 0}
    for size, blocks in ((32, 45), (16, 91)):  # in whole blocks of either size, and shown as it was asked for
        knobs = server.set(block_size=size)["knobs"]
        assert knobs["swap_space"]["value"] == 64 << 20 and server.admin("blocks")["host"]["num_blocks"] == blocks
    expected = _texts(server, in_background)
    assert server.metric("llm_kv_transfer_bytes_total", direction="out") == 0
    server.set(kv_pool_tokens=160)
    assert _texts(server, in_background) == expected
    metrics = server.metrics()
    assert metrics["llm_preemptions_total", (("reason", "kv_full"),)] > 0
    moved = [metrics["llm_kv_transfer_bytes_total", (("direction", way),)] for way in ("out", "in")]
    assert moved[0] > 0 and moved[1] > 0 and moved[0] % (16 * 46_080) == 0
    assert metrics["llm_recomputed_tokens_total", ()] == 0
    losses = [loss for request in server.admin("requests")["requests"] for loss in request["preemptions"]]
    assert any(loss["mode"] == "swap" and loss["lost_tokens"] == 0 for loss in losses)

    server.set(swap_space=0)  # nowhere to go: the same load computes again
    assert server.admin("config")["hints"]["host_swap_bytes"] == 0
    assert _texts(server, in_background) == expected
    assert server.metric("llm_recomputed_tokens_total") > 0
    assert server.metric("llm_kv_transfer_bytes_total", direction="out") == moved[0]
    assert server.admin("blocks")["integrity"] == "ok"
    assert server.admin("blocks")["ledger"]["reserved"] == 0  # no swap is in flight any more
