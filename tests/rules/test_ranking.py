"""Order of findings, folding of symptoms, and advice that never contradicts itself."""

from __future__ import annotations

import pytest

from infradoc_rules.model import Action, Finding
from infradoc_rules.ranking import rank


def _finding(finding_id, severity="warning", confidence=0.8, *actions):
    advised = tuple(Action("knob", "increase", "why", name=name) for name in actions)
    return Finding(finding_id, severity, confidence, "t", "c", "i", "f", actions=advised)


def _ids(found):
    return [finding.id for finding in found]


def test_severity_then_confidence():
    found = [
        _finding("a", "info"),
        _finding("b", "warning", 0.6),
        _finding("c", "critical", 0.2),
        _finding("d", "warning", 0.9),
    ]
    assert _ids(rank(found, {})) == ["c", "d", "b", "a"]


def test_symptoms_come_last_and_say_little():
    found = [_finding("queue", "warning", 0.99, "limit_queue"), _finding("cause", "info", 0.3)]
    ranked = rank(found, {"cause": ["queue", "not-there"]})
    assert [(f.id, f.role, f.severity, f.explains) for f in ranked] == [
        ("cause", "root", "info", ("queue",)),
        ("queue", "symptom", "info", ()),
    ]
    assert ranked[1].actions == ()


def test_a_chain_has_one_root():
    found = [_finding("a"), _finding("b"), _finding("c")]
    assert [f.role for f in rank(found, {"a": ["b"], "b": ["c"]})] == ["root", "symptom", "symptom"]


def test_two_that_explain_each_other_both_stay():
    assert [f.role for f in rank([_finding("a"), _finding("b")], {"a": ["b"], "b": ["a"]})] == ["root", "root"]


def test_the_later_finding_does_not_advise_the_reverse():
    found = [
        _finding("kv", "warning", 0.9, "raise_kv_capacity", "lower_max_num_seqs"),
        _finding("batch", "warning", 0.7, "raise_max_num_seqs", "add_replicas"),
    ]
    assert [[action.name for action in finding.actions] for finding in rank(found, {})] == [
        ["raise_kv_capacity", "lower_max_num_seqs"],
        ["add_replicas"],
    ]


def test_one_memory_is_not_given_and_taken_at_once():
    found = [
        _finding("oom", "critical", 0.9, "lower_gpu_memory_utilization"),
        _finding("kv", "warning", 0.9, "raise_kv_capacity", "lower_max_num_seqs"),
    ]
    assert [[action.name for action in finding.actions] for finding in rank(found, {})] == [
        ["lower_gpu_memory_utilization"],
        ["lower_max_num_seqs"],
    ]


def test_what_was_done_lately_is_not_undone():
    [finding] = rank([_finding("batch", "warning", 0.7, "raise_max_num_seqs")], {}, frozenset({"lower_max_num_seqs"}))
    assert finding.actions == ()


@pytest.mark.parametrize("name", ["raise_max_num_seqs", "unheard_of"])
def test_advice_without_an_opponent_stays(name):
    [finding] = rank([_finding("x", "warning", 0.7, name)], {}, frozenset({"raise_kv_capacity"}))
    assert [action.name for action in finding.actions] == [name]
