"""Diagnoses that were set aside: which condition held, which failed with which value, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc_rules.catalog import load_catalog
from infradoc_rules.conditions import Variables
from infradoc_rules.considered import MOST, considered
from infradoc_rules.considered_parts import live_part, match_part
from infradoc_rules.engine import evaluate_rules, findings
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.lifecycle import RuleStates
from infradoc_rules.model import SEVERITY_RANK, Event, Fact, Finding, Series
from infradoc_rules.schema import Condition, MatchBranch

GIB = 1 << 30
CATALOG = load_catalog()
NONE = Variables({})


def frame(facts=None, *events: Event) -> MemoryFrame:
    known = [
        Fact(name, value, "derived", f"server.log:{place}") for place, (name, value) in enumerate((facts or {}).items())
    ]
    return MemoryFrame.build(events=events, facts=known)


def part(match: str, seen: MemoryFrame):
    return match_part(Condition(match=match), seen, NONE)


def finding(name: str, severity: str = "critical", **more) -> Finding:
    return Finding(name, severity, 0.9, name, "c", "i", "f", **more)


def weighed(seen: MemoryFrame, lang: str = "en"):
    results = evaluate_rules(CATALOG, seen, RuleStates(), lang)
    found = findings(results)
    return found, considered(found, CATALOG.rules, seen, lang)


OOM = {
    "oom.phase": "graph_capture",
    "oom.at_start": True,
    "oom.fragmented": False,
    "oom.reserved_unallocated_bytes": 0.4 * GIB,
    "oom.fragmented_share": 0.009,
    "oom.want_bytes": 0.5 * GIB,
    "gpu.shared": False,
    "gpu.other_share": 0.0,
    "start.failed": True,
    "start.ready": False,
}
REFUSED = Event("cuda_oom", 1, {"phase": "graph_capture"}, source="server.log:88")


def test_the_part_that_failed_is_named_with_its_value():
    seen = frame({"a": 3.0, "b": True, "c": "x"}, REFUSED)
    one = part('exists(cuda_oom) and fact("a") > 5', seen)
    assert (one.holds, one.fact, one.value, one.op, one.limit) == (False, "a", 3.0, ">", 5)
    assert one.source == "server.log:0"
    assert part('fact("b") == False', seen).value is True
    assert part('fact("c") == "y" or fact("a") < 1', seen).value == "x"
    one = part("exists(nccl_timeout)", seen)
    assert (one.holds, one.event, one.value) == (False, "nccl_timeout", False)
    assert part('fact("unseen") > 1', seen).holds is None


@pytest.mark.parametrize(
    ("match", "telling"),
    [
        ("exists(cuda_oom)", 0.3),  # of every incident of its area
        ('fact("a") >= 3', 1.0),
        ('fact("b") == True', 1.0),
        ('fact("b") == False or fact("a") <= 9', 0.0),  # an absence tells nothing
        ('fact("a") >= 0', 0.0),  # there for its text
        ('not known("z")', 0.0),
    ],
)
def test_what_holds_for_many_tells_little(match, telling):
    one = part(match, frame({"a": 3.0, "b": True}, REFUSED))
    assert one.holds and one.telling == telling


def test_a_failed_expression_shows_its_left_side():
    times = [float(second) for second in range(61)]
    seen = MemoryFrame.build([Series("llm_kv_cache_usage_ratio", {}, times, [0.4] * 61)], window=10.0)
    one = live_part(Condition(expr="avg_over_time(llm_kv_cache_usage_ratio[10s]) > 0.7"), seen, NONE)
    assert (one.holds, one.op, one.limit) == (False, ">", 0.7)
    assert one.value == pytest.approx(0.4)
    assert live_part(Condition(expr="llm_requests_waiting > 1"), seen, NONE).holds is None
    assert live_part(Condition(expr="llm_kv_cache_usage_ratio > 0.1"), seen, NONE).holds is True


def test_a_refusal_in_graph_capture_sets_the_others_aside_with_numbers():
    found, aside = weighed(frame(OOM, REFUSED))
    assert found[0].id == "oom-cudagraph-capture"
    said = {one.id: one for one in aside}
    assert len(aside) == MOST
    assert "0.40 GiB, 0.9% of the device" in said["fragmentation-allocator"].why
    assert "3 % of the device" in said["fragmentation-allocator"].why
    assert "while CUDA graphs were captured" in said["oom-sampler-warmup"].why
    assert all(one.source and one.source.startswith("server.log:") for one in aside)


def test_chinese_says_the_same_numbers():
    _, aside = weighed(frame(OOM, REFUSED), "zh")
    said = {one.id: one.why for one in aside}
    assert "0.40 GiB，占设备 0.9%" in said["fragmentation-allocator"]


def test_an_echo_names_its_root_and_what_speaks_against_it():
    facts = {**OOM, "oom.fragmented": True, "oom.reserved_unallocated_bytes": 9 * GIB, "oom.fragmented_share": 0.2}
    found, aside = weighed(frame(facts, REFUSED))
    assert [one.id for one in found[:2]] == ["fragmentation-allocator", "oom-cudagraph-capture"]
    assert aside[0].id == "oom-cudagraph-capture"
    assert "fragmentation-allocator" in aside[0].why and "not in one piece" in aside[0].why


def test_what_is_not_known_is_said_last_and_as_such():
    _, aside = weighed(frame({**OOM, "oom.phase": "serving", "oom.at_start": False, "oom.large_step": True}, REFUSED))
    gaps = [one for one in aside if one.why.startswith("what was given does not show it")]
    assert gaps == aside[len(aside) - len(gaps) :]
    assert all(one.source is None for one in gaps)


def test_one_reason_is_not_told_again_and_again():
    _, aside = weighed(frame(OOM, REFUSED))
    assert len({one.why for one in aside}) == len(aside)


def test_a_rule_that_holds_is_not_set_aside():
    """It fires, or will once it has held for long enough."""
    rules = [CATALOG.get("oom-cudagraph-capture")]
    assert considered([finding("oom-sampler-warmup")], rules, frame(OOM, REFUSED)) == []


def test_a_healthy_target_shows_only_what_is_truly_near():
    base = {"length.answers": 900, "length.refused": 0, "length.cut": 0}
    rules = [CATALOG.get("output-truncated")]
    event = Event("http_access", 1, {"path": "/x", "code": 200})
    near = considered([], rules, frame({**base, "length.capped_share": 0.45}, event))
    assert [one.id for one in near] == ["output-truncated"] and "45%" in near[0].why
    assert considered([], rules, frame({**base, "length.capped_share": 0.2}, event)) == []


def test_only_rules_with_a_tie_are_looked_at(monkeypatch):
    """A report takes milliseconds for this: most rules have nothing to do with what was found."""
    asked = []
    import infradoc_rules.considered as module

    real = module._nearest
    monkeypatch.setattr(module, "_nearest", lambda rule, *rest: asked.append(rule.id) or real(rule, *rest))
    considered([finding("oom-cudagraph-capture")], CATALOG.rules, frame(OOM, REFUSED))
    assert 3 <= len(asked) <= 15


VALUES = st.one_of(st.booleans(), st.floats(-1, 1e12), st.sampled_from(["none", "serving", "graph_capture", "", "x"]))
NAMES = sorted(
    {
        name
        for rule in CATALOG.rules
        for branch in (rule.post_mortem.branches if rule.post_mortem else ())
        for item in branch.when
        for name in Variables(rule.thresholds).match(item.match).facts
    }
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=40), st.sampled_from(["en", "zh"]))
def test_nothing_considered_is_a_finding_whatever_the_facts_are(facts, lang):
    found, aside = weighed(frame(facts, REFUSED), lang)
    loud = {one.id for one in found if SEVERITY_RANK[one.severity] >= 1}
    assert not loud & {one.id for one in aside}
    assert len(aside) <= MOST and len({one.id for one in aside}) == len(aside)
    assert all(one.why and "{" not in one.why and "[" not in one.why for one in aside)


def test_a_folded_finding_that_is_loud_is_not_repeated():
    loud = replace(finding("queue-saturation", "warning"), role="symptom")
    assert considered([finding("kv-oversubscription"), loud], [], frame(OOM, REFUSED)) == []


def test_an_echo_of_nothing_is_left_out():
    """Its root may be gone by the end of a watch."""
    echo = replace(finding("queue-saturation", "info"), role="symptom")
    assert considered([echo], [], frame(OOM, REFUSED)) == []


def test_what_speaks_against_is_the_reason_where_no_condition_has_words():
    rule = CATALOG.get("oom-cudagraph-capture")
    wordless = [
        Condition(match='fact("some.new") == "verdict"'),
        Condition(match='fact("oom.phase") == "graph_capture"'),
    ]
    part = replace(rule.post_mortem, any=(MatchBranch(when=tuple(wordless)),))
    seen = frame({**OOM, "some.new": "other", "oom.fragmented": True}, REFUSED)
    aside = considered([finding("oom-sampler-warmup")], [replace(rule, post_mortem=part)], seen)
    assert [one.why for one in aside] == ["enough was held but not in one piece"]


def test_figures_that_the_log_does_not_give_are_not_claimed():
    facts = {name: value for name, value in OOM.items() if not name.startswith(("oom.reserved", "oom.fragmented_"))}
    said = {one.id: one.why for one in weighed(frame(facts, REFUSED))[1]}
    assert said["fragmentation-allocator"].startswith("how much is reserved but unallocated is not told")
