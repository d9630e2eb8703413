"""Prompts over the limit: cut by policy with a flag and counters, or by wish of the client, which is no silent cut."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def policy(server: Any) -> Any:
    yield lambda name: server.set(truncation_policy=name)
    server.set(truncation_policy="reject")


@pytest.mark.parametrize("name", ["left", "right", "middle"])
def test_policy_cuts_sets_the_flag_and_counts(server: Any, policy: Any, name: str) -> None:
    policy(name)
    prompt = list(range(1000, 1600))
    requests = server.metric("llm_requests_truncated_total", policy=name)
    tokens = server.metric("llm_truncated_tokens_total", policy=name)
    answer = server.complete(prompt, max_tokens=2)
    assert answer["infradoc"]["truncated"] == {"policy": name, "original_tokens": 600, "kept_tokens": 510}
    assert answer["usage"]["prompt_tokens"] == 510
    assert server.metric("llm_requests_truncated_total", policy=name) == requests + 1
    assert server.metric("llm_truncated_tokens_total", policy=name) == tokens + 90
    kept = {"left": prompt[90:], "right": prompt[:510], "middle": prompt[:255] + prompt[-255:]}[name]
    assert server.complete(kept, max_tokens=2)["choices"][0]["text"] == answer["choices"][0]["text"]


def test_stream_carries_the_flag(server: Any, policy: Any) -> None:
    policy("left")
    body = {"prompt": [1000] * 600, "max_tokens": 1, "stream": True}
    events = server.http.post("/v1/completions", json=body).text
    assert '"infradoc":{"truncated":{"policy":"left","original_tokens":600,"kept_tokens":511}}' in events


def test_a_cut_that_the_client_asked_for_is_counted_apart(server: Any) -> None:
    before = [server.metric("llm_requests_truncated_total", policy=name) for name in ("left", "right", "middle")]
    answer = server.complete([1000] * 600, max_tokens=1, truncate_prompt_tokens=20)
    assert answer["usage"]["prompt_tokens"] == 20
    assert answer["infradoc"]["truncated"]["requested"] is True
    after = [server.metric("llm_requests_truncated_total", policy=name) for name in ("left", "right", "middle")]
    assert after == before
    assert "infradoc" not in server.complete("short", max_tokens=1, truncate_prompt_tokens=20)
