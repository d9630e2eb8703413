"""Recorded faults: the right finding first, with the labelled change, and nothing that the label forbids."""

from __future__ import annotations

import pytest
import yaml

ALL = ("log", "host", "client")
EXPECTED = {
    "vllm-05": "kv-thrashing-preemption",
    "vllm-07": "queue-saturation",
    "vllm-09": "output-truncated",
    "vllm-10": "prefix-cache-ineffective",
    "vllm-11": "prefill-blocks-decode",
    "vllm-13": "engine-stalled",
    "vllm-18": "silent-truncation",
    "llamacpp-03": "context-length-exceeded",
}

# That prompts share a prefix is in no metric: a cache that is off and much prompt work is all there is to see.
SURE = {"vllm-10": 0.5}


@pytest.fixture(params=sorted(EXPECTED))
def sick(request, replay, recordings):
    label = yaml.safe_load((recordings / request.param / "label.yaml").read_text())
    return request.param, replay(request.param, *ALL), label


def test_the_first_finding_is_the_labelled_one(sick):
    name, seen, label = sick
    assert seen.findings[0].id == EXPECTED[name] == label["expect"][0]
    assert seen.findings[0].role == "root"
    assert seen.findings[0].confidence > SURE.get(name, 0.7)


def test_nothing_forbidden_fires(sick):
    _, seen, label = sick
    loud = {finding.id for finding in seen.findings if finding.severity != "info"}
    assert not loud & set(label["forbid"])
    assert not set(seen.fired) & set(label["forbid"])


def test_one_of_the_first_two_changes_is_the_labelled_one(sick):
    _, seen, label = sick
    advised = {action.knob: action.change for action in seen.findings[0].actions[:2]}
    for knob, change in label["fix"].items():
        wanted = ("set", "increase", "decrease", "enable") if isinstance(change, dict) else (change,)
        if advised.get(knob) in wanted:
            return
    assert not label["fix"], f"advised {advised}, labelled {label['fix']}"


def test_it_fires_for_most_of_the_fault(sick):
    name, seen, _ = sick
    assert seen.fired[EXPECTED[name]] > 0.3 * seen.ticks


@pytest.mark.parametrize("name", ["vllm-05", "vllm-07", "vllm-18"])
def test_the_metrics_page_alone_is_enough(replay, name):
    assert replay(name).findings[0].id == EXPECTED[name]


def test_a_stall_is_seen_without_the_host_too_after_a_minute(replay):
    assert [finding.id for finding in replay("vllm-13").findings] == ["engine-stalled"]


def test_refusals_are_seen_in_the_log_alone(replay):
    assert replay("llamacpp-03", "log").findings[0].id == "context-length-exceeded"


def test_without_log_and_client_refusals_cannot_be_seen(replay):
    assert replay("llamacpp-03").results.by_id["context-length-exceeded"].state == "unknown"


def test_a_queue_behind_a_thrashing_pool_is_its_symptom(replay):
    seen = replay("vllm-05", *ALL)
    assert [(finding.id, finding.role) for finding in seen.findings] == [
        ("kv-thrashing-preemption", "root"),
        ("queue-saturation", "symptom"),
    ]
    assert seen.findings[0].explains == ("queue-saturation",)
    assert seen.findings[1].actions == ()


def test_the_pool_is_sized_from_measured_lengths(replay):
    grow, shrink = replay("vllm-05", *ALL).findings[0].actions[:2]
    assert (grow.name, grow.from_value) == ("raise_kv_capacity", 3072)
    assert 8_000 <= grow.to_value <= 16_384  # 16 requests of up to 600 tokens in blocks of 128
    assert grow.flag == f"--num-gpu-blocks-override {grow.to_value // 128}"
    assert "MiB" in grow.cost
    assert shrink.name == "lower_max_num_seqs"
    assert shrink.to_value < 16


def test_long_prompts_are_the_symptom_where_their_prefix_is_not_reused(replay):
    seen = replay("vllm-10", *ALL)
    assert ("prefill-blocks-decode", "symptom") in [(finding.id, finding.role) for finding in seen.findings]
    assert seen.findings[0].actions[0].flag == "--enable-prefix-caching"


def test_the_chunk_is_sized_from_the_longest_gap(replay):
    action = replay("vllm-11", *ALL).findings[0].actions[0]
    # 1800 tokens took 11 s, so a quarter of a second is some 40 tokens; vLLM takes no budget below max_num_seqs
    assert (action.to_value, action.flag) == (256, "--max-num-batched-tokens 256")


@pytest.mark.parametrize("name", ["vllm-09", "vllm-10", "vllm-11"])
def test_the_metrics_page_alone_shows_the_same(replay, name):
    assert replay(name).findings[0].id == EXPECTED[name]


def test_a_cap_of_eight_tokens_is_raised_to_an_answer(replay):
    action = replay("vllm-09", *ALL).findings[0].actions[0]
    assert (action.name, action.to_value, action.risk) == ("raise_client_max_tokens", 256, "read_only")


def test_a_device_that_is_full_of_prompts_is_told_after_the_load(replay):
    seen = [finding.id for finding in replay("vllm-07", *ALL).findings if finding.role == "root"]
    assert seen[:2] == ["queue-saturation", "prefill-compute-bound"]
