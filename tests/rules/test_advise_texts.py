"""Every sizing function on the made-up targets of the catalog's cases: each gives an action that is worded in full."""

from __future__ import annotations

from functools import lru_cache

import pytest

from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import ADVISERS, Advice
from infradoc_rules.cases import case_frame, load_cases
from infradoc_rules.catalog import CASES_SUFFIX, default_dir, rule_files
from infradoc_rules.rule_file import load_rule


@lru_cache(maxsize=2)
def _advised(lang):
    """Sizing function -> the actions that it gave on cases in which its rule fires."""
    found = {}
    for path in rule_files(default_dir()):
        rule, _ = load_rule(path)
        for case in load_cases(path.with_name(path.stem + CASES_SUFFIX)):
            if case.expect != "fires":
                continue
            advice = Advice(case_frame(case), rule.thresholds, lang)
            for name in rule.advised:
                action = ADVISERS[name](advice)
                if action is not None:
                    found.setdefault(name, []).append(action)
    return found


@pytest.mark.parametrize("name", sorted(ADVISERS))
def test_every_sizing_function_is_advised_by_a_rule_and_has_a_case(name):
    assert _advised("en").get(name), f"no rule that fires in a case gets an action from {name}"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", sorted(ADVISERS))
def test_every_action_names_knob_cost_and_loser(name, lang):
    for action in _advised(lang).get(name, ()):
        spec = ACTIONS[action.name]
        assert (action.knob, action.change, action.risk) == (spec.knob, spec.change, spec.risk)
        assert action.why and action.cost
        if lang == "en":
            assert "loser" in action.cost
        else:
            assert any("\u4e00" <= char <= "\u9fff" for char in action.cost)
            assert any("\u4e00" <= char <= "\u9fff" for char in action.why)
