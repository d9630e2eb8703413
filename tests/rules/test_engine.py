"""Evaluation: joins, truth of odd values, blindness, findings with their texts."""

from __future__ import annotations

import pytest

from infradoc_rules.catalog import Catalog, load_catalog
from infradoc_rules.engine import evaluate_rules, findings
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.lifecycle import RuleStates
from infradoc_rules.model import Event, Fact, Series
from infradoc_rules.promql import STALE_NAN
from infradoc_rules.rule_file import rule_of

T0 = 1_700_000_000.0
TIMES = [T0 + second for second in range(31)]


def _series(name, values, **labels):
    points = [float(values)] * len(TIMES) if isinstance(values, int | float) else values
    return Series(name, labels, TIMES[: len(points)], points)


def _frame(*series, **rest):
    return MemoryFrame.build(series, now=TIMES[-1], **rest)


def _rule(rule_data, *when, **more):
    data = {**rule_data, "live": {"when": list(when), "for": 0, "keep": 0}, "thresholds": {}, **more}
    return rule_of({key: value for key, value in data.items() if value is not None})


def _state(rule, frame):
    return evaluate_rules(Catalog((rule,)), frame, RuleStates()).results[0]


def test_all_items_must_hold(rule_data):
    rule = _rule(rule_data, "sum(llm_requests_waiting) > 3", "sum(llm_requests_running) > 3")
    both = _frame(_series("llm_requests_waiting", 5), _series("llm_requests_running", 5))
    one = _frame(_series("llm_requests_waiting", 5), _series("llm_requests_running", 1))
    assert (_state(rule, both).state, _state(rule, one).state) == ("firing", "ok")


def test_items_are_joined_on_the_engine_rank(rule_data):
    rule = _rule(rule_data, "llm_requests_waiting > 3", "llm_kv_cache_usage_ratio > 0.9")

    def frame(full_rank):
        return _frame(
            _series("llm_requests_waiting", 5, engine="0"),
            _series("llm_requests_waiting", 0, engine="1"),
            _series("llm_kv_cache_usage_ratio", 0.95 if full_rank == "0" else 0.1, engine="0"),
            _series("llm_kv_cache_usage_ratio", 0.95 if full_rank == "1" else 0.1, engine="1"),
        )

    assert _state(rule, frame("0")).state == "firing"
    assert _state(rule, frame("1")).state == "ok"


def test_an_item_without_a_rank_holds_for_all(rule_data):
    rule = _rule(rule_data, "llm_requests_waiting > 3", "sum(llm_requests_running) > 3")
    frame = _frame(_series("llm_requests_waiting", 5, engine="1"), _series("llm_requests_running", 5, engine="0"))
    assert _state(rule, frame).state == "firing"


@pytest.mark.parametrize(
    ("numerator", "denominator", "state"),
    [(1, 0, "firing"), (0, 0, "ok"), (1, 1, "ok"), (float("nan"), 1, "ok")],
)
def test_division_by_zero_and_nan(rule_data, numerator, denominator, state):
    rule = _rule(rule_data, "sum(llm_requests_waiting) / sum(llm_requests_running) > 1")
    frame = _frame(_series("llm_requests_waiting", numerator), _series("llm_requests_running", denominator))
    assert _state(rule, frame).state == state


def test_a_missing_signal_is_unknown_and_named(rule_data):
    rule = _rule(rule_data, "sum(llm_requests_waiting) > 3", "llm_kv_cache_usage_ratio > 0.9")
    result = _state(rule, _frame(_series("llm_requests_waiting", 0)))
    assert (result.state, result.missing) == ("unknown", ("llm_kv_cache_usage_ratio",))


def test_a_label_that_is_missing_is_unknown_where_absence_is_no_data(rule_data):
    rule = _rule(rule_data, 'max(config_value{knob="max_num_seqs"}) > 3')
    other = _frame(_series("llm_requests_waiting", 0), facts=[Fact("block_size", 16, "flag")])
    assert _state(rule, other).missing == ('config_value{knob="max_num_seqs"}',)
    known = _frame(_series("llm_requests_waiting", 0), facts=[Fact("max_num_seqs", 16, "flag")])
    assert _state(rule, known).state == "firing"


def test_a_counter_that_waits_for_its_first_increment_is_zero(rule_data):
    rule = _rule(rule_data, "sum(rate(llm_preemptions_total[$window])) > 0")
    frame = _frame(_series("llm_requests_waiting", 0), provides=frozenset({"llm_preemptions_total"}))
    assert _state(rule, frame).state == "ok"
    never = _frame(_series("llm_requests_waiting", 0), provides=frozenset({"llm_requests_waiting"}))
    assert _state(rule, never).state == "unknown"


def test_old_samples_are_no_data(rule_data):
    rule = _rule(rule_data, "sum(llm_requests_waiting) > 3")
    frame = _frame(_series("llm_requests_waiting", [5.0] * 10))
    assert _state(rule, frame).state == "unknown"
    stale = _frame(_series("llm_requests_waiting", [5.0] * 10 + [STALE_NAN] * 21))
    assert _state(rule, stale).state == "unknown"


def test_one_sample_is_no_rate(rule_data):
    rule = _rule(rule_data, "sum(rate(llm_generation_tokens_total[$window])) > 0")
    frame = MemoryFrame.build([Series("llm_generation_tokens_total", {}, [T0], [9.0])])
    assert _state(rule, frame).state == "unknown"


def test_history_that_an_offset_needs(rule_data):
    rule = _rule(rule_data, "sum(llm_generation_tokens_total) - sum(llm_generation_tokens_total offset $long) == 0")
    result = _state(rule, _frame(_series("llm_generation_tokens_total", 5)))
    assert result.missing == ("llm_generation_tokens_total (60 s of history)",)


def test_what_stands_behind_unless_may_be_absent(rule_data):
    rule = _rule(rule_data, "sum(llm_requests_waiting) > 3 unless on() (sum(llm_requests_running) > 5)")
    waiting = _series("llm_requests_waiting", 5)
    assert _state(rule, _frame(waiting)).state == "firing"
    assert _state(rule, _frame(waiting, _series("llm_requests_running", 9))).state == "ok"


def test_branches(rule_data):
    branches = [{"when": ["sum(llm_requests_waiting) > 3"]}, {"when": ["sum(llm_kv_pool_tokens) > 3"]}]
    rule = rule_of({**rule_data, "thresholds": {}, "live": {"any": branches, "for": 0}})
    calm, busy, pool = (
        _series("llm_requests_waiting", 0),
        _series("llm_requests_waiting", 9),
        _series("llm_kv_pool_tokens", 9),
    )
    assert _state(rule, _frame(calm, pool)).state == "firing"
    assert _state(rule, _frame(busy)).state == "firing"
    assert _state(rule, _frame(calm)).state == "ok"
    assert _state(rule, _frame(_series("llm_requests_running", 1))).state == "unknown"


def test_live_signals_win_over_the_log(rule_data):
    rule = _rule(rule_data, "sum(llm_requests_waiting) > 3", post_mortem={"when": ["count(preempted) >= 1"]})
    events = [Event("preempted", 1, {"count": 1}, source="server.log:7")]
    assert _state(rule, _frame(_series("llm_requests_waiting", 0), events=events)).state == "ok"
    past = _state(rule, MemoryFrame.build(events=events))
    assert past.state == "firing"
    assert past.finding.evidence[0].source == "server.log:7"
    assert past.finding.evidence[0].value == 1.0


def test_finding_texts_evidence_and_confidence(rule_data):
    text = {"en": "{value} wait, limit {limit}", "zh": "{value} 个等待，阈值 {limit}"}
    sign = {"en": "{value:.0%} full", "zh": "占用 {value:.0%}"}
    data = {
        **rule_data,
        "live": {"when": [{"expr": "sum(llm_requests_waiting) > $limit", "text": text}], "for": 0},
        "prior": 0.5,
        "supports": [{"expr": "llm_kv_cache_usage_ratio > 0.5", "weight": 1.0, "text": sign}],
        "against": [{"match": 'fact("max_num_seqs") == 4', "weight": 2.0, "text": text}],
        "values": {"running": "sum(llm_requests_running)", "gone": "sum(llm_kv_pool_tokens)"},
        "cause": {"en": "{running} run, {gone} tokens", "zh": "{running} 个运行"},
    }
    frame = _frame(
        _series("llm_requests_waiting", 9),
        _series("llm_requests_running", 2),
        _series("llm_kv_cache_usage_ratio", 0.75),
        facts=[Fact("max_num_seqs", 4, "flag")],
    )
    catalog, states = Catalog((rule_of(data),)), RuleStates()
    finding = evaluate_rules(catalog, frame, states).results[0].finding
    assert finding.cause == "2 run, ? tokens"
    assert finding.confidence == pytest.approx(0.378, abs=0.001)  # logistic(0.5 + 1 - 2)
    assert [(row.text, row.signal, row.value, row.unit, row.weight) for row in finding.evidence] == [
        ("9 wait, limit 3", "llm_requests_waiting", 9.0, "requests", 0.0),
        ("75% full", "llm_kv_cache_usage_ratio", 0.75, "ratio", 1.0),
        ("4 wait, limit 3", None, 4.0, None, -2.0),
    ]
    chinese = evaluate_rules(catalog, frame, RuleStates(), "zh").results[0].finding
    assert chinese.evidence[0].text == "9 个等待，阈值 3"


def test_a_finding_is_kept_with_its_last_evidence_while_it_is_kept_up(rule_data):
    data = {**rule_data, "live": {"when": ["sum(llm_requests_waiting) > $limit"], "for": 0, "keep": 5}}
    catalog, states = Catalog((rule_of(data),)), RuleStates()
    frame = MemoryFrame.build([_series("llm_requests_waiting", [9.0] * 10 + [0.0] * 20)])
    seen = [evaluate_rules(catalog, frame.at(time), states).results[0] for time in TIMES[:18]]
    assert [result.state for result in seen[9:17]] == ["firing"] * 6 + ["resolved", "ok"]
    assert seen[12].finding.evidence[0].value == 9.0
    assert seen[15].finding is None


def test_an_ambiguous_match_is_unknown_and_says_so(rule_data):
    rule = _rule(rule_data, "llm_requests_running * on (engine) llm_requests_waiting > 0")
    doubled = [_series("llm_requests_waiting", 1, engine="0", model=model) for model in "ab"]
    result = _state(rule, _frame(_series("llm_requests_running", 1, engine="0"), *doubled))
    assert result.state == "unknown"
    assert "a value of PromQL" in result.missing[0]


def test_results_tell_what_was_checked(rule_data):
    results = evaluate_rules(load_catalog(), _frame(_series("llm_requests_waiting", 0)), RuleStates())
    assert {result.id for result in results.unknown} | set(results.checked) == {
        rule.id for rule in load_catalog().rules
    }
    assert findings(results) == []


@pytest.mark.parametrize("watched", [15, 30, 58, 90])
def test_a_rate_over_what_was_watched(watched):
    """80 wait and 2 finish a second: 40 s, however short the watch. Divided by the whole minute it was 79 s."""
    times = [T0 + second for second in range(watched + 1)]
    waiting = Series("llm_requests_waiting", {}, times, [80.0] * len(times))
    running = Series("llm_requests_running", {}, times, [16.0] * len(times))
    finished = Series("llm_requests_finished_total", {"reason": "stop"}, times, [2.0 * n for n in range(len(times))])
    tokens = Series("llm_generation_tokens_total", {}, times, [100.0 * n for n in range(len(times))])
    rule = Catalog(tuple(rule for rule in load_catalog().rules if rule.id == "queue-saturation"))
    states = RuleStates()
    for now in times:
        judged = evaluate_rules(rule, MemoryFrame.build([waiting, running, finished, tokens], now=T0).at(now), states)
    wait = [one.value for found in findings(judged) for one in found.evidence if one.unit == "seconds"]
    assert wait == [pytest.approx(40, rel=0.02)]
