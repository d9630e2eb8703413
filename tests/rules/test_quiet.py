"""Healthy recordings give nothing at all, and no rule of the first catalog fires on faults that are not its own."""

from __future__ import annotations

import pytest

PARTS = [("log", "host", "client"), ()]
HEALTHY = ["vllm-01", "vllm-03", "llamacpp-01"]
OTHER_FAULTS = ["vllm-16"]  # faults of rules that a later catalog brings


@pytest.mark.parametrize("parts", PARTS, ids=["all", "metrics"])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_is_left_in_peace(replay, name, parts):
    seen = replay(name, *parts)
    assert seen.fired == {}
    assert seen.findings == []


@pytest.mark.parametrize("parts", PARTS, ids=["all", "metrics"])
@pytest.mark.parametrize("name", OTHER_FAULTS)
def test_faults_of_other_rules_are_not_claimed(replay, name, parts):
    assert replay(name, *parts).fired == {}


def test_a_server_that_never_answered_is_no_healthy_one(replay):
    seen = replay("vllm-16")
    assert {result.state for result in seen.results.results} == {"unknown"}
    assert seen.results.checked == ()


# What a server without a GPU and without a log of allocations cannot show, whatever rule asks for it.
NOT_ON_A_CPU = (
    "gpu_",
    "torch_",
    "llm_requests_swapped",
    'log_value{event="cuda_oom"',
    'host_pressure_ratio{resource=~"memory|io"',
)


def test_healthy_means_that_the_rules_could_look(replay):
    seen = replay("vllm-01", "log", "host", "client")
    unknown = [result for result in seen.results.unknown if result.rule.live is not None]  # the others judge logs alone
    assert len(seen.results.checked) > 2 * len(unknown)
    for result in unknown:
        assert any(name.startswith(NOT_ON_A_CPU) for name in result.missing), f"{result.id} lacks {result.missing}"
