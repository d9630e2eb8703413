"""The rule file format: every mistake is one sentence with file, key, line and the nearest valid name."""

from __future__ import annotations

import pytest

from infradoc_rules.catalog import Catalog
from infradoc_rules.rule_file import RuleError, load_rule


def _problem(path):
    with pytest.raises(RuleError) as caught:
        load_rule(path)
    return caught.value.problems


def test_a_sound_rule_loads(rule_data, write_rule):
    rule, marked = load_rule(write_rule(rule_data))
    assert rule.id == "queue-saturation"
    assert rule.live.for_periods == 0
    assert rule.live.branches[0].when[0].expr == "sum(llm_requests_waiting) > $limit"
    assert marked.line(("thresholds", "limit")) == 8


def test_buckets_that_judge_a_fix_are_kept_as_well(rule_data, write_rule):
    metric = {"signal": "llm_request_seconds", "quantile": 0.9, "at_most": 0.8}
    rule, _ = load_rule(write_rule({**rule_data, "verify": {"metrics": [metric]}}))
    assert Catalog((rule,)).bucket_names() == {"llm_request_seconds_bucket"}


def test_a_misspelt_key_names_the_nearest(rule_data, write_rule):
    rule_data["falsifer"] = rule_data.pop("falsifier")
    problems = _problem(write_rule(rule_data))
    assert any("falsifier is missing" in text for text in problems)
    wrong = next(text for text in problems if "falsifer" in text and "did you mean" in text)
    assert "queue-saturation.yaml, line " in wrong and "'falsifier'" in wrong


def test_a_misspelt_key_deep_inside_names_its_line(rule_data, write_rule):
    rule_data["live"]["kep"] = 1
    [problem] = _problem(write_rule(rule_data))
    assert "line 14: live.kep" in problem and "did you mean 'keep'?" in problem


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda d: d.update(schema=2), "schema: input should be 1"),
        (lambda d: d.update(severity="high"), "severity: input should be 'info', 'warning' or 'critical'"),
        (lambda d: d.update(id="Queue Saturation"), "id: string should match pattern"),
        (lambda d: d.pop("live"), "needs live or post_mortem"),
        (lambda d: d["title"].pop("zh"), "title.zh is missing"),
        (lambda d: d["title"].update(zh=""), "title.zh: string should have at least 1 character"),
        (lambda d: d["live"].update(any=[{"when": ["up"]}]), "live: needs exactly one of when and any"),
        (lambda d: d["live"].update(when=[]), "live: needs exactly one of when and any"),
        (lambda d: d["live"].update({"for": -1}), "live.for: input should be greater than or equal to 0"),
        (lambda d: d["live"].update(when=[{"expr": "a", "match": "b"}]), "needs exactly one of expr and match"),
        (lambda d: d.update(supports=[{"expr": "a"}]), "supports[0].weight is missing"),
        (lambda d: d.update(thresholds={"limit": "many"}), "thresholds.limit: input should be a valid number"),
        (lambda d: d.update(verify={"metrics": [{"signal": "x"}]}), "needs exactly one of at_most and at_least"),
    ],
)
def test_what_is_wrong_is_named(rule_data, write_rule, change, part):
    rule_data_id = rule_data["id"]
    change(rule_data)
    problems = _problem(write_rule(rule_data, name=rule_data_id))
    assert any(part in text for text in problems), problems


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n- b\n", "a rule file is a mapping"),
        ("schema: 1\nid: [\n", "not readable as YAML"),
        ("", "the file is empty"),
        ("schema: 1\nschema: 1\n", "line 2: the key 'schema' is there twice"),
        ("a: &x [*x]\n", "line 1"),
        ("schema: !!python/object/apply:os.system ['true']\n", "not readable as YAML"),
    ],
)
def test_files_that_are_no_rules(write_rule, text, part):
    problems = _problem(write_rule(text, name="bad", cases=None))
    assert any(part in problem and "bad.yaml" in problem for problem in problems), problems


def test_texts_in_two_languages(rule_data, write_rule):
    rule, _ = load_rule(write_rule(rule_data))
    assert (rule.title.get("en"), rule.title.get("zh"), rule.title.get("fr")) == ("a text", "一段文字", "a text")
