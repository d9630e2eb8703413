"""Plans as text: no internal name where there is nothing to type, and one is not many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infradoc.model import Plan, PlanStep
from infradoc.remediation.table import finding_lines, plan_lines, reclaimed_blocks
from infradoc_rules.actions import ACTIONS
from infradoc_rules.model import Evidence, Finding

Make = Callable[..., Any]


def test_what_has_neither_flag_nor_values_is_said_in_words(make_action: Make) -> None:
    for name, spec in ACTIONS.items():
        step = PlanStep("f", make_action(name, spec.knob, spec.change, None, None), None)
        head = plan_lines(Plan("t", (step,)))[1]
        assert head.startswith(f"  1. {spec.means}  [") and "_" not in head.replace("read_only", ""), head


def test_a_restart_by_hand_and_what_was_left_out(make_action: Make) -> None:
    step = PlanStep("engine-stalled", make_action("restart_engine", "engine_restart", "enable", None, None), None)
    refused = (("engine_restart", "The operator has to do it."), ("max_num_seqs", "In cooldown."))
    lines = plan_lines(Plan("t", (step,), refused))
    assert lines[1] == "  1. restart the server  [by hand, reversible]  for engine-stalled"
    assert lines[-2:] == [
        "  left out: engine restart: The operator has to do it.",
        "  left out: max_num_seqs: In cooldown.",
    ]


def test_a_flag_and_values_are_shown_as_before(make_action: Make) -> None:
    action = make_action("lower_max_num_seqs", "max_num_seqs", "decrease", 16, 8, flag="--max-num-seqs 8")
    head = plan_lines(Plan("t", (PlanStep("kv", action, 16),)))[1]
    assert head == "  1. max_num_seqs 16 -> 8  [live, reversible; --max-num-seqs 8]  for kv"


def test_one_request_waits() -> None:
    found = Finding("q", "warning", 0.9, "t", "1 requests wait", "i", "f", evidence=(Evidence("1 requests run"),))
    lines = finding_lines(found)
    assert lines[1:3] == ["  evidence: 1 request runs", "  cause:    1 request waits"]


def test_blocks_without_a_field_are_left_out() -> None:
    rows = [{"block": 1, "owner": "a", "age_seconds": 2}, {"block": 2, "owner": "b", "age_seconds": 5}, {"block": 3}]
    assert [row["block"] for row in reclaimed_blocks({"reclaimed": [*rows, "junk"]})] == [2, 1]
