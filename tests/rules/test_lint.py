"""The lint: the packaged catalog is clean, and each check catches a rule that is bad in just that way."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

from infradoc_rules.catalog import default_dir, rule_files
from infradoc_rules.lint import lint
from infradoc_rules.lint.expressions import match_problems, promql_problems

NAMES = {"limit": 3.0, "window": 10.0, "mid": 30.0, "long": 60.0, "period": 1.0}


def _lint(path):
    return lint(path.parents[1])


def test_the_packaged_catalog_is_clean():
    assert lint() == []


def test_a_sound_rule_is_clean(rule_data, write_rule):
    assert _lint(write_rule(rule_data)) == []


def _expr(text):
    def change(data):
        data["live"]["when"] = [text + " > $limit" if ">" not in text else text]

    return change


BAD = {
    "unknown id": (
        lambda d: d.update(id="queue-saturated"),
        "no finding id of vocabulary.yaml; did you mean queue",
    ),
    "unknown explains": (lambda d: d.update(explains=["engine-stuck"]), "explains engine-stuck"),
    "explains itself": (lambda d: d.update(explains=["queue-saturation"]), "no other finding id"),
    "unknown advice": (lambda d: d.update(advise=["add_replica"]), "did you mean add_replicas"),
    "unused threshold": (lambda d: d["thresholds"].update(spare=1), "threshold spare is used in no condition"),
    "threshold hides a built-in": (lambda d: d["thresholds"].update(window=1), "hides the built-in $window"),
    "unknown signal": (_expr("sum(llm_request_waiting) > $limit"), "did you mean llm_requests_waiting"),
    "bare histogram": (_expr("llm_request_seconds > $limit"), "it is a histogram, use llm_request_seconds_bucket"),
    "unknown label": (
        _expr('sum(llm_requests_finished_total{reson="stop"}) > $limit'),
        "did you mean reason",
    ),
    "unknown grouping": (_expr("sum by (state) (llm_requests_waiting) > $limit"), "groups by state"),
    "unknown variable": (_expr("sum(llm_requests_waiting) > $limits"), "unknown variable $limits"),
    "outside the subset": (_expr("predict_linear(llm_requests_waiting[$window], 60) > $limit"), "outside the subset"),
    "not PromQL": (_expr("sum(llm_requests_waiting > $limit"), "PromQL:"),
    "fixed range": (_expr("sum(rate(llm_requests_finished_total[30s])) > $limit"), "is a fixed time"),
    "never false": (lambda d: d["live"].update(when=["sum(llm_requests_waiting)"]), "holds whenever there is data"),
    "bool": (_expr("sum(llm_requests_waiting) > bool $limit"), "uses bool"),
    "hopeless match": (
        _expr("llm_requests_finished_total / llm_requests_running > $limit"),
        "one-to-one matching of `/` can never succeed: only the left side has the label reason",
    ),
    "unknown knob": (_expr('max(config_value{knob="max_num_seq"}) > $limit'), "did you mean max_num_seqs"),
    "unknown event of a view": (
        _expr('sum(log_event_total{event="preempt"}) > $limit'),
        "is no event; did you mean",
    ),
    "match among live": (
        lambda d: d["live"].update(when=[{"match": "exists(preempted)"}]),
        "belongs under post_mortem",
    ),
    "expr among post mortem": (
        lambda d: d.update(post_mortem={"when": [{"expr": "sum(llm_requests_waiting) > 3"}]}),
        "not an expr",
    ),
    "unknown event": (lambda d: d.update(post_mortem={"when": ["count(preempt) > 3"]}), "did you mean preempted"),
    "unknown field": (
        lambda d: d.update(post_mortem={"when": ["last(preempted).counts > 3"]}),
        "no field counts; did you mean count",
    ),
    "unknown fact": (
        lambda d: d.update(post_mortem={"when": ['exists(preempted) and fact("max_seqs") == 1']}),
        "'max_seqs' is no knob",
    ),
    "not a match": (lambda d: d.update(post_mortem={"when": ["import os"]}), "not an expression"),
    "unknown evidence signal": (
        lambda d: d["live"].update(when=[{"expr": "sum(llm_requests_waiting) > $limit", "signal": "llm_waiting"}]),
        "signal llm_waiting is not in signals.yaml",
    ),
    "no Chinese": (lambda d: d["title"].update(zh="only English"), "holds no Chinese"),
    "unknown place": (
        lambda d: d["cause"].update(en="{limt} wait"),
        "nothing gives; did you mean limit",
    ),
    "bad value": (
        lambda d: d.update(values={"x": "sum(nothing_known)"}),
        "signal nothing_known is not in",
    ),
    "unused value": (lambda d: d.update(values={"spare": "sum(llm_requests_running)"}), "spare is filled into no text"),
    "no false alarms": (lambda d: d.update(false_alarms=[]), "false_alarms is empty"),
    "verify an unknown signal": (
        lambda d: d.update(verify={"metrics": [{"signal": "client_ttft", "at_most": 0.5}]}),
        "client_ttft is not in signals.yaml",
    ),
    "verify a quantile of a counter": (
        lambda d: d.update(
            verify={"metrics": [{"signal": "llm_generation_tokens_total", "quantile": 0.5, "at_most": 1}]}
        ),
        "quantile goes with a histogram",
    ),
    "verify a class of a server signal": (
        lambda d: d.update(verify={"metrics": [{"signal": "llm_requests_running", "at_most": 1, "class": "chat"}]}),
        "has no label class",
    ),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_each_check_catches_its_rule(rule_data, write_rule, name):
    change, part = BAD[name]
    bad = copy.deepcopy(rule_data)
    change(bad)
    problems = _lint(write_rule(bad))
    assert any(part in problem for problem in problems), problems
    assert all(".yaml, line " in problem for problem in problems)


def test_a_missing_falsifier_is_caught(rule_data, write_rule):
    del rule_data["falsifier"]
    assert any("falsifier is missing" in problem for problem in _lint(write_rule(rule_data)))


def test_a_missing_cases_file_is_caught(rule_data, write_rule):
    assert any("no cases file" in problem for problem in _lint(write_rule(rule_data, cases=None)))


def test_a_missing_kind_of_case_is_caught(rule_data, write_rule):
    only = {"cases": [{"name": "a", "expect": "fires", "series": {"llm_requests_waiting": 9}}]}
    problems = _lint(write_rule(rule_data, cases=only))
    assert sum("has no case that expects" in problem for problem in problems) == 2


def test_the_wrong_folder_and_the_wrong_file_name_are_caught(rule_data, write_rule):
    problems = _lint(write_rule(rule_data, area="health", name="queue"))
    assert any("belongs into the folder scheduling" in problem for problem in problems)
    assert any("asks for queue-saturation.yaml" in problem for problem in problems)


def test_the_same_id_twice_is_caught(rule_data, write_rule):
    write_rule(rule_data)
    path = write_rule(rule_data, area="health")
    assert any("is also in" in problem for problem in _lint(path))


def test_an_empty_folder_is_a_problem(tmp_path):
    assert lint(tmp_path) == [f"{tmp_path}: no rule files here"]


def test_the_line_is_that_of_the_expression(rule_data, write_rule):
    rule_data["live"]["when"] = ["sum(llm_requests_waiting) > $limit", "sum(unknown_signal) > 1"]
    [problem] = _lint(write_rule(rule_data))
    assert "line 12: signal unknown_signal" in problem


@pytest.mark.parametrize(
    "text",
    [
        "sum(llm_requests_waiting) / sum(llm_requests_running) > 1",
        "llm_requests_waiting / llm_requests_running > 1",
        "sum by (engine) (llm_requests_waiting) / on (engine) llm_requests_running > 1",
        "llm_requests_finished_total / ignoring (reason) group_left llm_requests_running > 1",
        "llm_preemptions_total / llm_requests_running > 1",
        "vector(1) unless on() count(llm_requests_waiting)",
        "absent(llm_requests_waiting)",
        "histogram_quantile(0.9, sum by (le) (rate(llm_request_seconds_bucket[$window]))) > 1",
    ],
)
def test_sound_expressions_pass(text):
    assert list(promql_problems(text, NAMES, condition=True)) == []


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("sum by (reason) (llm_requests_finished_total) / sum(llm_requests_running) > 1", "reason"),
        ("sum(llm_requests_running) / sum by (reason) (llm_requests_finished_total) > 1", "reason"),
        ("llm_kv_blocks / llm_kv_pool_blocks > 1", "state"),
        ("llm_request_seconds_bucket / llm_request_seconds_count > 1", "le"),
        ('llm_kv_blocks{state="free"} and llm_requests_waiting > 1', "state"),
        ("llm_kv_blocks / on (state) llm_requests_waiting > 1", "state"),
    ],
)
def test_matches_that_can_never_succeed(text, label):
    [problem] = list(promql_problems(text, NAMES, condition=True))
    assert "can never succeed" in problem and label in problem


def test_match_texts():
    assert list(match_problems('count(preempted, count >= $limit) > 2 and fact("gpu.name") == "H100"', NAMES)) == []
    assert "unknown variable $limits" in next(iter(match_problems("count(preempted) > $limits", NAMES)))


def test_the_command(rule_data, write_rule, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-P", "-m", "infradoc_rules.lint", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = run(str(default_dir()))
    assert (good.returncode, good.stdout) == (0, f"{len(rule_files(default_dir()))} rules, 0 problems\n")
    rule_data["advise"] = ["nothing"]
    bad = run(str(write_rule(rule_data).parents[1]))
    assert bad.returncode == 1
    assert "advises nothing" in bad.stderr
    assert run("--help-me").returncode == 2
