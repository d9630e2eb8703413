from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from infradoc.config import Permissions
from infradoc.remediation.admin import EngineState, KnobState
from infradoc.remediation.guard import Guard
from infradoc.remediation.plan import Context, loser, make_plan
from infradoc_rules.model import Action, Finding

MakeFinding = Callable[..., Finding]


@pytest.fixture
def grow(make_action: Callable[..., Action]) -> Action:
    return make_action("raise_kv_capacity", "kv_pool_tokens", "increase", 384, 1536)


@pytest.fixture
def lower(make_action: Callable[..., Action]) -> Action:
    return make_action("lower_max_num_seqs", "max_num_seqs", "decrease", 16, 8)


@pytest.fixture
def higher(make_action: Callable[..., Action]) -> Action:
    return make_action("raise_max_num_seqs", "max_num_seqs", "increase", 16, 32)


def context(engine: EngineState | None, **more: Any) -> Context:
    return Context("http://x:1", more.pop("guard", Guard([])), 2000.0, engine, **more)


def test_the_rules_order_is_kept_and_each_loser_named(
    engine_state: EngineState, make_finding: MakeFinding, grow: Action, lower: Action
) -> None:
    plan = make_plan([make_finding("kv", grow, lower)], context(engine_state))
    assert [step.action.knob for step in plan.steps] == ["kv_pool_tokens", "max_num_seqs"]
    assert [step.undo_value for step in plan.steps] == [384, 16]
    assert all(loser(step.action) for step in plan.steps)
    assert plan.refused == ()


def test_two_findings_never_push_one_knob_both_ways(
    engine_state: EngineState, make_finding: MakeFinding, lower: Action, higher: Action
) -> None:
    plan = make_plan([make_finding("kv", lower), make_finding("batch", higher)], context(engine_state))
    assert [step.finding for step in plan.steps] == ["kv"]
    assert plan.refused == (("max_num_seqs", "kv wants max_num_seqs the other way, and ranks before."),)


def test_two_knobs_of_one_memory_are_not_pushed_against_each_other(
    engine_state: EngineState, make_finding: MakeFinding, make_action: Callable[..., Action], grow: Action
) -> None:
    state = KnobState("gpu_memory_utilization", 0.9, "flag", (0.1, 1.0), "drain", "--gpu-memory-utilization")
    engine = replace(engine_state, knobs={**engine_state.knobs, state.name: state})
    leave = make_action("lower_gpu_memory_utilization", state.name, "decrease", 0.9, 0.8)
    plan = make_plan([make_finding("oom", leave), make_finding("kv", grow)], context(engine))
    assert [step.finding for step in plan.steps] == ["oom"]
    ((knob, reason),) = plan.refused
    assert knob == "kv_pool_tokens"
    assert (
        reason == "oom wants to leave more of the device above the KV pool, which works against it, and ranks before."
    )


def test_a_further_knob_of_a_step_is_not_pushed_back(
    engine_state: EngineState, make_finding: MakeFinding, make_action: Callable[..., Action], lower: Action
) -> None:
    both = make_action(
        "raise_max_num_batched_tokens", "max_num_batched_tokens", "increase", 512, 1024, also=(("max_num_seqs", 32),)
    )
    same = make_action(
        "raise_max_num_batched_tokens", "max_num_batched_tokens", "increase", 512, 2048, also=(("max_num_seqs", 16),)
    )
    plan = make_plan([make_finding("kv", lower), make_finding("batch", both, same)], context(engine_state))
    assert [step.action.to_value for step in plan.steps] == [
        8,
        2048,
    ]  # one that keeps the knob as it is contradicts none
    assert plan.refused == (("max_num_batched_tokens", "kv wants max_num_seqs the other way, and ranks before."),)


def test_only_one_finding(engine_state: EngineState, make_finding: MakeFinding, grow: Action, higher: Action) -> None:
    plan = make_plan([make_finding("kv", grow), make_finding("batch", higher)], context(engine_state), only="batch")
    assert [step.finding for step in plan.steps] == ["batch"]


def test_what_is_in_cooldown_is_refused(
    engine_state: EngineState, make_finding: MakeFinding, lower: Action, grow: Action, make_change: Any
) -> None:
    guard = Guard([make_change("max_num_seqs", 8, 16, 1900.0)])
    plan = make_plan([make_finding("kv", lower, grow)], context(engine_state, guard=guard))
    assert [step.action.knob for step in plan.steps] == ["kv_pool_tokens"]
    assert "In cooldown" in plan.refused[0][1]


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        (None, True),
        (Permissions(), False),
        (Permissions(apply=True), True),
        (Permissions(apply=True, knobs=("x",)), False),
    ],
)
def test_permissions(
    engine_state: EngineState, make_finding: MakeFinding, grow: Action, permissions: Permissions | None, allowed: bool
) -> None:
    plan = make_plan([make_finding("kv", grow)], context(engine_state, permissions=permissions))
    assert bool(plan.steps) is allowed
    assert bool(plan.refused) is not allowed


def test_what_is_not_live_is_left_out_with_its_reason(
    engine_state: EngineState, make_finding: MakeFinding, make_action: Callable[..., Action], grow: Action
) -> None:
    restart = make_action("raise_api_server_count", "api_server_count", "increase", 1, 2)
    client = make_action("shorten_client_prompts", "client_prompt_tokens", "decrease", None, 64)
    drain = replace(
        engine_state,
        knobs={**engine_state.knobs, "kv_pool_tokens": replace(engine_state.knobs["kv_pool_tokens"], change="drain")},
    )
    plan = make_plan([make_finding("len", restart, client, grow)], context(drain))
    assert plan.steps == ()
    assert [reason for _, reason in plan.refused] == [
        "Not a live change: restart the engine with the flag.",
        "Not a live change: whoever sends the requests has to change them.",
        "The engine takes kv_pool_tokens only at a drain: --kv-pool-tokens.",
    ]


def test_without_an_admin_api_all_advice_is_shown_live_first(
    make_finding: MakeFinding, make_action: Callable[..., Action], grow: Action
) -> None:
    client = make_action("shorten_client_prompts", "client_prompt_tokens", "decrease", None, 64)
    plan = make_plan([make_finding("len", client, grow)], context(None))
    assert [step.action.knob for step in plan.steps] == ["kv_pool_tokens", "client_prompt_tokens"]
    assert plan.refused == ()


def test_the_same_advice_of_two_findings_is_one_step(
    engine_state: EngineState, make_finding: MakeFinding, grow: Action
) -> None:
    plan = make_plan([make_finding("kv", grow), make_finding("queue", grow)], context(engine_state))
    assert [step.finding for step in plan.steps] == ["kv"]
