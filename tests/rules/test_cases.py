"""Every cases file of the catalog is a test; and the format itself."""

from __future__ import annotations

import pytest

from infradoc_rules.cases import CasesError, load_cases, run_case
from infradoc_rules.catalog import CASES_SUFFIX, default_dir, rule_files
from infradoc_rules.rule_file import load_rule

RULES = {path.stem: path for path in rule_files(default_dir())}


def _all_cases():
    for rule_id, path in RULES.items():
        for case in load_cases(path.with_name(path.stem + CASES_SUFFIX)):
            yield pytest.param(rule_id, case, id=f"{rule_id}: {case.name}")


@pytest.mark.parametrize(("rule_id", "case"), list(_all_cases()))
def test_case(rule_id, case):
    rule, _ = load_rule(RULES[rule_id])
    assert run_case(rule, case).problem is None


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_every_rule_has_near_misses_and_a_blind_case(rule_id):
    path = RULES[rule_id]
    kinds = [case.expect for case in load_cases(path.with_name(path.stem + CASES_SUFFIX))]
    assert kinds.count("fires") >= 2
    assert kinds.count("quiet") >= 2
    assert kinds.count("unknown") >= 1


def test_a_case_that_does_not_hold_says_how(rule_data, write_rule, tmp_path):
    wrong = {"cases": [{"name": "calm", "expect": "fires", "series": {"llm_requests_waiting": 0}}]}
    path = write_rule(rule_data, cases=wrong)
    rule, _ = load_rule(path)
    result = run_case(rule, load_cases(path.with_name(path.stem + CASES_SUFFIX))[0])
    assert result.problem == "calm: expected fires, ended ok"


def test_advice_that_differs_is_a_problem(rule_data, write_rule):
    rule_data["advise"] = ["lower_request_rate"]
    asked = {
        "name": "many",
        "expect": "fires",
        "series": {"llm_requests_waiting": 9},
        "actions": {"add_replicas": None},
    }
    path = write_rule(rule_data, cases={"cases": [asked]})
    rule, _ = load_rule(path)
    problem = run_case(rule, load_cases(path.with_name(path.stem + CASES_SUFFIX))[0]).problem
    assert problem is not None and "add_replicas" in problem and "lower_request_rate" in problem


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cases: []", "a list of cases"),
        ("cases:\n  - {name: a, expect: sometimes}", "line 2: expect"),
        ("cases:\n  - name: a\n    expect: fires\n    serie: {}", "line 4: serie"),
        ("cases: [", "not readable as YAML"),
        ("", "the file is empty"),
    ],
)
def test_a_bad_cases_file_is_one_sentence_with_its_line(tmp_path, text, part):
    path = tmp_path / "x.cases.yaml"
    path.write_text(text)
    with pytest.raises(CasesError, match=r"x\.cases\.yaml") as caught:
        load_cases(path)
    assert part in str(caught.value)


def test_notation(rule_data, write_rule):
    data = {"name": "n", "expect": "quiet", "seconds": 6, "series": {"llm_requests_waiting": "1x2 5+1x1 _x1"}}
    path = write_rule(rule_data, cases={"cases": [data]})
    rule, _ = load_rule(path)
    result = run_case(rule, load_cases(path.with_name(path.stem + CASES_SUFFIX))[0])
    assert result.states[:5] == ("ok", "ok", "ok", "firing", "firing")


def test_a_wrong_notation_is_refused(rule_data, write_rule):
    data = {"name": "n", "expect": "quiet", "series": {"llm_requests_waiting": "1..2"}}
    path = write_rule(rule_data, cases={"cases": [data]})
    rule, _ = load_rule(path)
    with pytest.raises(CasesError, match="no value notation"):
        run_case(rule, load_cases(path.with_name(path.stem + CASES_SUFFIX))[0])
