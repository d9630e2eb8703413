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


def _buckets(server: Any, name: str) -> dict[float, float]:
    """Upper bound -> requests up to it."""
    bounds = {sample: value for sample, value in server.metrics().items() if sample[0] == f"{name}_bucket"}
    return {float(dict(labels)["le"]): value for (_, labels), value in bounds.items()}


def _observed(before: dict[float, float], after: dict[float, float]) -> list[tuple[float, int]]:
    """(upper bound, requests in that bucket) of what came between."""
    gained = [(bound, after[bound] - before[bound]) for bound in sorted(after)]
    lower = 0.0
    found = []
    for bound, total in gained:
        if total > lower:
            found.append((bound, int(total - lower)))
        lower = max(lower, total)
    return found


@pytest.mark.parametrize(
    ("policy_name", "tokens", "fields", "bound"),
    [
        ("left", 900, {}, 1000.0),  # cut to 511
        ("reject", 900, {}, 1000.0),  # refused
        ("reject", 30, {}, 31.62),  # as it is
        ("left", 900, {"truncate_prompt_tokens": 20}, 25.12),  # what the client itself cuts was never wanted
        ("left", 900, {"truncate_prompt_tokens": -1}, 1000.0),  # what it leaves to the limit was
    ],
)
def test_the_length_before_the_cut_is_known(
    server: Any, policy: Any, policy_name: str, tokens: int, fields: dict[str, int], bound: float
) -> None:
    policy(policy_name)
    name = "llm_prompt_tokens_before_truncation"
    before = _buckets(server, name)
    body = {"prompt": [1000] * tokens, "max_tokens": 1, **fields}
    assert server.http.post("/v1/completions", json=body).status_code in (200, 400)
    assert _observed(before, _buckets(server, name)) == [(bound, 1)]


def test_what_is_no_prompt_has_no_length(server: Any) -> None:
    name = "llm_prompt_tokens_before_truncation"
    before = _buckets(server, name)
    assert server.http.post("/v1/completions", json={"prompt": [10**9], "max_tokens": 1}).status_code == 400
    assert _observed(before, _buckets(server, name)) == []


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
