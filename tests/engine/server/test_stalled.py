"""A step that does not end: whoever looks gets an answer, whoever changes something is told, and nothing comes late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def stallable(start_server: Any) -> Any:
    return start_server(
        *("--max-model-len", "256", "--kv-pool-tokens", "1024", "--max-num-seqs", "4", "--health-stall-seconds", "0.5"),
        *("--enable-faults", "--drain-seconds", "0.1"),
    )


def _switch(server: Any, active: bool) -> None:
    body = {"name": "stall", "active": active}
    answer = server.http.post("/admin/faults", json=body, headers=server.auth)
    assert answer.status_code == 200, answer.text


def _until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def stalled(stallable: Any, in_background: Any) -> Iterator[Any]:
    """One request is in a step that sleeps; afterwards it gets all its tokens."""
    _switch(stallable, True)
    waiting = in_background(stallable.complete, "Hello", max_tokens=3, ignore_eos=True)
    try:
        _until(lambda: stallable.http.get("/health").status_code == 503)
        yield stallable
    finally:
        _switch(stallable, False)
    assert waiting.result()["usage"]["completion_tokens"] == 3


def test_whoever_looks_gets_an_answer(stalled: Any) -> None:
    config = stalled.admin("config")
    assert config["knobs"]["max_num_seqs"]["value"] == 4 and config["hints"]["free_memory_bytes"] > 0
    assert stalled.admin("blocks")["num_blocks"] == 64
    assert len([r for r in stalled.admin("requests")["requests"] if r["state"] != "finished"]) == 1
    assert stalled.metric("llm_engine_ready") == 0


def test_changes_that_need_no_step_are_made(stalled: Any, in_background: Any) -> None:
    blocked = in_background(stalled.patch, max_num_seqs=2)
    assert stalled.set(truncation_policy="left")["knobs"]["truncation_policy"]["value"] == "left"
    assert stalled.set(truncation_policy="reject", max_queued_requests=7)["knobs"]["max_queued_requests"]["value"] == 7
    stalled.set(max_queued_requests=None)
    assert blocked.result().status_code == 503


@pytest.mark.parametrize(
    "knobs",
    [
        *({"max_num_seqs": 2}, {"watermark": 0.2}, {"swap_space": 8 << 20}, {"kv_pool_tokens": 2048}),
        *({"block_size": 8}, {"max_model_len": 128}, {"enforce_eager": True}),
    ],
)
def test_changes_that_wait_for_the_step_are_given_up_for_good(stallable: Any, in_background: Any, knobs: Any) -> None:
    before = stallable.admin("config")
    _switch(stallable, True)
    waiting = in_background(stallable.complete, "Hello", max_tokens=3, ignore_eos=True)
    try:
        _until(lambda: stallable.http.get("/health").status_code == 503)
        answer = stallable.patch(**knobs)
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert error["code"] == "step_running" and "a step has run for" in error["message"]
        assert error["message"].endswith("Nothing was changed.")
        assert stallable.metric("llm_engine_draining") == 0
    finally:
        _switch(stallable, False)
    assert waiting.result()["usage"]["completion_tokens"] == 3
    after = stallable.admin("config")
    assert after["knobs"] == before["knobs"] and after["version"] == before["version"]
    shown = stallable.metrics()
    assert shown["llm_kv_pool_tokens", ()] == 1024 and shown["llm_kv_block_size_tokens", ()] == 16


def test_what_was_applied_before_is_named(stalled: Any) -> None:
    version = stalled.admin("config")["version"]
    answer = stalled.patch(truncation_policy="left", preemption_mode="swap")
    assert answer.status_code == 503
    message = answer.json()["error"]["message"]
    assert message.endswith(" Already applied: truncation_policy.") and "Nothing was changed" not in message
    config = stalled.admin("config")
    assert config["version"] == version + 1 and config["knobs"]["preemption_mode"]["value"] == "recompute"
    stalled.set(truncation_policy="reject")


def test_a_drain_can_be_asked_for_and_ended(stalled: Any) -> None:
    held = stalled.http.post("/admin/drain", json={"seconds": 0.1}, headers=stalled.auth)
    try:
        assert held.status_code == 200 and held.json()["draining"] is True
    finally:
        resumed = stalled.http.post("/admin/drain", json={"resume": True}, headers=stalled.auth)
    assert resumed.status_code == 200 and resumed.json()["draining"] is False
    refused = stalled.http.post("/admin/defragment", json={}, headers=stalled.auth)
    assert refused.status_code == 503 and "a step has run for" in refused.json()["error"]["message"]
