"""Changes that the engine takes through a drain of its own, and orders that are no settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from infradoc.config import Permissions
from infradoc.model import PlanStep
from infradoc.remediation.admin import AdminClient, AdminError, EngineState, KnobState
from infradoc.remediation.change import apply, take_back
from infradoc.remediation.guard import Guard
from infradoc.remediation.journal import Journal
from infradoc.remediation.plan import Context, make_plan
from infradoc_rules.model import Action, Finding

Make = Callable[..., Any]
CONFIG = {"version": 3, "engine": "infradoc", "knobs": {}}


@pytest.fixture
def drained(engine_state: EngineState) -> EngineState:
    blocks = KnobState("block_size", 256, "flag", (1, 256), "drain", "--block-size")
    return replace(engine_state, knobs={**engine_state.knobs, "block_size": blocks})


@pytest.fixture
def smaller(make_action: Make) -> Action:
    action: Action = make_action("lower_block_size", "block_size", "decrease", 256, 16)
    return action


@pytest.fixture
def order(make_action: Make) -> Action:
    action: Action = make_action("defragment_kv", "defragment", "enable", None, True)
    return action


def planned(finding: Finding, engine: EngineState, **more: Any) -> Any:
    return make_plan([finding], Context("http://x:1", more.pop("guard", Guard([])), 2000.0, engine, **more))


def test_a_drain_is_a_step_with_a_way_back(drained: EngineState, make_finding: Make, smaller: Action) -> None:
    (step,) = planned(make_finding("fragmentation-kv-internal", smaller), drained).steps
    assert step.undo_value == 256


def test_a_knob_that_needs_a_restart_is_no_drain(drained: EngineState, make_finding: Make, smaller: Action) -> None:
    old = replace(drained, knobs={"block_size": replace(drained.knobs["block_size"], change="restart")})
    plan = planned(make_finding("fragmentation-kv-internal", smaller), old)
    assert plan.steps == () and "only at a restart" in plan.refused[0][1]


def test_an_order_needs_no_knob_of_the_engine(drained: EngineState, make_finding: Make, order: Action) -> None:
    (step,) = planned(make_finding("memory-leak", order), drained).steps
    assert step.undo_value is None


def test_an_order_waits_for_its_cooldown_and_its_permission(
    drained: EngineState, make_finding: Make, make_change: Make, order: Action
) -> None:
    finding = make_finding("memory-leak", order)
    guard = Guard([make_change("defragment", None, True, 1900.0)])
    assert "In cooldown" in planned(finding, drained, guard=guard).refused[0][1]
    allowed = Permissions(apply=True, knobs=("max_num_seqs",))
    assert "not defragment" in planned(finding, drained, permissions=allowed).refused[0][1]


def test_an_order_is_given_and_journalled(httpserver: HTTPServer, journal: Journal, order: Action) -> None:
    told = {"reclaimed": [{"block": 4, "owner": "a", "age_seconds": 9.0}] * 3, "moves": 5, "ledger": {"free": 9}}
    httpserver.expect_oneshot_request("/admin/defragment", method="POST", json={}).respond_with_json(told)
    httpserver.expect_request("/admin/config", method="GET").respond_with_json(CONFIG)
    with AdminClient(httpserver.url_for(""), "t") as admin:
        applied = apply(admin, journal, PlanStep("memory-leak", order, None))
        assert (applied.entry.knob, applied.entry.new, applied.entry.note) == (
            "defragment",
            True,
            "reclaimed 3, moves 5",
        )
        assert "nothing to take back" in take_back(admin, journal, journal.changes()[0])
    assert not journal.changes()[0].open


def test_a_refused_order_is_in_the_journal(httpserver: HTTPServer, journal: Journal, order: Action) -> None:
    answer = json.dumps({"error": {"message": "The engine is draining."}})
    httpserver.expect_request("/admin/defragment", method="POST").respond_with_data(answer, status=409)
    with AdminClient(httpserver.url_for(""), "t") as admin, pytest.raises(AdminError, match="is draining"):
        apply(admin, journal, PlanStep("memory-leak", order, None))
    assert journal.changes()[0].last.kind == "failed"
