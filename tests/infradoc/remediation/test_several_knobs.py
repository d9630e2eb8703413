"""Steps that move several knobs, in the plan, the guard, the journal and the text; verdicts with fixed bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from infradoc.config import Permissions
from infradoc.load.record import RequestRecord
from infradoc.model import Plan
from infradoc.remediation.admin import EngineState, KnobState
from infradoc.remediation.data import plan_json
from infradoc.remediation.guard import Guard
from infradoc.remediation.journal import ChangeRecord, Entry, Journal, intent
from infradoc.remediation.measure import ClientMeasured
from infradoc.remediation.plan import Context, make_plan
from infradoc.remediation.table import plan_lines
from infradoc.remediation.verify import Case, judge
from infradoc_rules.model import Action, Finding, Value
from infradoc_rules.schema import Verify

Make = Callable[..., Any]


@pytest.fixture
def fit(make_action: Make) -> Action:
    also = (("truncation_policy", "reject"),)
    action: Action = make_action("raise_max_model_len", "max_model_len", "increase", 128, 320, also=also)
    return action


def planned(finding: Finding, engine: EngineState, guard: Guard | None = None, **more: Any) -> Plan:
    return make_plan([finding], Context("http://x:1", guard or Guard([]), 2000.0, engine, **more))


def test_all_knobs_are_in_the_plan_with_their_way_back(
    engine_state: EngineState, make_finding: Make, fit: Action
) -> None:
    plan = planned(make_finding("silent-truncation", fit), engine_state)
    (step,) = plan.steps
    assert (step.undo_value, step.undo_also) == (128, (("truncation_policy", "left"),))
    text = "\n".join(plan_lines(plan))
    assert "max_model_len 128 -> 320 and truncation_policy left -> reject  [live, through a drain" in text
    assert "cost:" in text and "loser:" in text
    (data,) = plan_json(plan)["steps"]
    assert (data["also"], data["undo_also"], data["drain"]) == (
        {"truncation_policy": "reject"},
        {"truncation_policy": "left"},
        True,
    )


def test_a_knob_that_has_its_value_already_is_left_out(
    engine_state: EngineState, make_finding: Make, fit: Action
) -> None:
    there = replace(engine_state.knobs["truncation_policy"], value="reject")
    engine = replace(engine_state, knobs={**engine_state.knobs, "truncation_policy": there})
    (step,) = planned(make_finding("silent-truncation", fit), engine).steps
    assert (step.undo_value, step.undo_also) == (128, ())


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (None, "The engine has no knob truncation_policy."),
        (KnobState("truncation_policy", "left", "flag", (), "restart", "--truncation-policy"), "only at a restart"),
        (KnobState("truncation_policy", "left", "flag", ("left",), "live", "--t"), "cannot be reject"),
    ],
)
def test_one_knob_that_cannot_move_keeps_the_whole_step_out(
    engine_state: EngineState, make_finding: Make, fit: Action, policy: KnobState | None, says: str
) -> None:
    knobs = {name: knob for name, knob in engine_state.knobs.items() if name != "truncation_policy"}
    engine = replace(engine_state, knobs=knobs | ({"truncation_policy": policy} if policy else {}))
    plan = planned(make_finding("silent-truncation", fit), engine)
    assert plan.steps == () and says in plan.refused[0][1]


def test_guard_and_permissions_look_at_every_knob(
    engine_state: EngineState, make_finding: Make, make_change: Make, fit: Action
) -> None:
    finding = make_finding("silent-truncation", fit)
    lately = Guard([make_change("truncation_policy", "reject", "left", 1900.0)])
    assert "In cooldown" in planned(finding, engine_state, lately).refused[0][1]
    allowed = Permissions(apply=True, knobs=("max_model_len",))
    assert "not truncation_policy" in planned(finding, engine_state, permissions=allowed).refused[0][1]


def test_the_guard_remembers_the_further_knobs_of_a_change() -> None:
    also = (("truncation_policy", "left", "reject"),)
    entry = Entry("intent", "c", 1000.0, "t", "max_model_len", 128, 320, also=also)
    guard = Guard([ChangeRecord(entry, replace(entry, kind="applied"), None)])
    assert "In cooldown" in (guard.refusal("truncation_policy", "reject", "left", 1001.0) or "")
    assert "reverse" in (guard.refusal("truncation_policy", "reject", "left", 1400.0) or "")


def test_the_journal_keeps_them(journal: Journal, engine_state: EngineState, make_finding: Make, fit: Action) -> None:
    (step,) = planned(make_finding("silent-truncation", fit), engine_state).steps
    also: tuple[tuple[str, Value | None, Value | None], ...] = (("truncation_policy", "left", "reject"),)
    first = journal.begin(intent("http://x:1", step, 128, 320, "h", also))
    journal.follow(first, "applied")
    (change,) = journal.changes()
    assert change.last.moves == (("max_model_len", 128, 320), ("truncation_policy", "left", "reject"))


BOUNDS = Verify(errors_at_most=0.05, cut_at_most=0.0, throughput_at_least=0.5)


def judged(before: list[RequestRecord], after: list[RequestRecord], verify: Verify = BOUNDS) -> tuple[str, str]:
    verdict = judge(Case(ClientMeasured(before, 0, 15), ClientMeasured(after, 30, 50), True, "a-rule", verify))
    return verdict.verdict, verdict.reason


def cut(record: RequestRecord) -> RequestRecord:
    return replace(record, prompt_words=20, prompt_tokens=10)


def refused(record: RequestRecord) -> RequestRecord:
    return replace(record, status=400, error="too long", error_kind="http_4xx", ttft=None, itl=[])


def test_answers_are_whole_or_it_is_not_fixed(make_records: Make) -> None:
    whole = [replace(record, prompt_words=20) for record in make_records(25, 55)]
    sent = [replace(record, prompt_words=20) for record in make_records(-5, 20)]
    before = [cut(record) if place % 2 else record for place, record in enumerate(sent)]
    assert judged(before, whole)[0] == "fixed"
    half = [cut(record) if place % 2 else record for place, record in enumerate(whole)]
    name, reason = judged(before, half)
    assert name == "not_fixed" and "cut prompts" in reason
    unknown = [replace(record, prompt_words=None) for record in whole]
    assert judged(before, unknown)[0] == "inconclusive"


def test_few_refusals_are_the_price_and_many_are_a_loss(make_records: Make) -> None:
    before = [replace(record, prompt_words=20) for record in make_records(-5, 20)]
    after = [replace(record, prompt_words=20) for record in make_records(25, 55)]
    few = [refused(record) if place % 40 == 0 else record for place, record in enumerate(after)]
    assert judged(before, few)[0] == "fixed"
    many = [refused(record) if place % 4 == 0 else record for place, record in enumerate(after)]
    assert judged(before, many)[0] == "worse"


def test_a_slower_server_within_the_stated_price_is_no_loss(make_records: Make) -> None:
    before = [replace(record, prompt_words=20) for record in make_records(-5, 20)]
    slower = [replace(record, prompt_words=20) for record in make_records(20, 55, ttft=0.9, gap=0.15)]
    assert judged(before, slower)[0] == "fixed"
    assert judged(before, slower, replace_throughput(0.95))[0] in ("worse", "not_fixed")


def replace_throughput(at_least: float) -> Verify:
    return replace(BOUNDS, throughput_at_least=at_least)


def test_from_nothing_to_something_is_better_and_nothing_to_nothing_is_not(make_records: Make) -> None:
    broken = [refused(record) for record in make_records(-5, 20)]
    verify = Verify(errors_at_most=0.05, throughput_at_least=1.2)
    assert judged(broken, make_records(25, 55), verify)[0] == "fixed"
    name, reason = judged(broken, [refused(record) for record in make_records(25, 55)], verify)
    assert name == "not_fixed" and "tokens/s" in reason
