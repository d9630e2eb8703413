"""The latency ledger: every stage measured by itself, and their sum is the end-to-end time."""

from __future__ import annotations

from typing import Any

STAGES = {"receive", "template", "tokenize", "queue", "prefill", "preempted", "decode", "detokenize", "send"}


def _check_sums(server: Any, known: set[str]) -> list[dict[str, Any]]:
    fresh = [r for r in server.admin("requests")["requests"] if r["id"] not in known and r["state"] == "finished"]
    assert fresh
    for request in fresh:
        assert set(request["stages"]) == STAGES
        total, whole = sum(request["stages"].values()), request["end_to_end_seconds"]
        assert abs(total - whole) < max(0.05 * whole, 0.02), request
    return fresh


def _known(server: Any) -> set[str]:
    return {request["id"] for request in server.admin("requests")["requests"]}


def test_stages_sum_to_end_to_end(server: Any, in_background: Any) -> None:
    known = _known(server)
    futures = [
        in_background(
            server.http.post,
            "/v1/chat/completions",
            json={
                "messages": [{"role": "user", "content": f"Tell me about the number {index}."}],
                "max_tokens": 12,
                "stream": index % 2 == 0,
            },
        )
        for index in range(12)  # more than max_num_seqs: some wait
    ]
    assert all(future.result().status_code == 200 for future in futures)
    done = _check_sums(server, known)
    assert len(done) == 12
    for stage in ("receive", "template", "tokenize", "queue", "prefill", "detokenize", "send"):
        assert all(request["stages"][stage] > 0 for request in done), stage
    assert any(request["stages"]["queue"] > 0.05 for request in done)


def test_stages_sum_with_workers_and_stop_texts(server: Any) -> None:
    server.set(tokenizer_workers=1)
    known = _known(server)
    try:
        server.complete("Once upon a time", max_tokens=30, stop=["the", "was"])
        server.complete("One two three", max_tokens=5, n=3)
    finally:
        server.set(tokenizer_workers=0)
    assert len(_check_sums(server, known)) == 4


def test_stages_sum_under_preemption(tight_server: Any, in_background: Any) -> None:
    known = _known(tight_server)
    futures = [
        in_background(tight_server.complete, f"{index} is a number that", max_tokens=26, ignore_eos=True)
        for index in range(6)
    ]
    assert all(future.result() for future in futures)
    _check_sums(tight_server, known)


def test_histogram_sums_agree_with_the_ledger(server: Any) -> None:
    def totals() -> tuple[float, float, float]:
        metrics = server.metrics()
        stages = sum(value for (name, _), value in metrics.items() if name == "llm_request_stage_seconds_sum")
        return stages, metrics["llm_request_seconds_sum", ()], metrics["llm_request_seconds_count", ()]

    stages, whole, count = totals()
    for _ in range(3):
        server.complete("Hello there, how are you?", max_tokens=8)
    stages_now, whole_now, count_now = totals()
    assert count_now == count + 3
    assert abs((stages_now - stages) - (whole_now - whole)) < max(0.05 * (whole_now - whole), 0.02)
