"""The table of words for conditions: complete for what rules ask, the same in both languages."""

from __future__ import annotations

import ast
import re

import pytest

from infradoc_rules.catalog import load_catalog
from infradoc_rules.conditions import Variables
from infradoc_rules.considered_words import fixed, table
from infradoc_rules.signals import signal_table
from infradoc_rules.texts import places
from infradoc_rules.vocabulary import finding_ids

CHINESE = re.compile(r"[\u4e00-\u9fff]")
RULES = load_catalog().rules
_PRESENT = {"stats_line", "step_line", "request_finished"}  # any log of a server has one of them: it decides nothing


def texts(node, where=""):
    if isinstance(node, dict) and set(node) == {"en", "zh"}:
        yield where, node
    elif isinstance(node, dict):
        for name, inner in node.items():
            yield from texts(inner, f"{where}.{name}")


def conditions():
    """(rule, tree) of every post-mortem condition."""
    for rule in RULES:
        for branch in rule.post_mortem.branches if rule.post_mortem else ():
            for item in branch.when:
                yield rule, Variables(rule.thresholds).match(item.match).tree


@pytest.mark.parametrize(("where", "text"), list(texts(table())))
def test_both_languages_say_the_same(where, text):
    assert CHINESE.search(text["zh"]) or not re.search(r"[a-z]{3}", re.sub(r"\{.*?\}", "", text["en"])), where
    assert places(text["en"]) == places(text["zh"]), where
    assert text["en"].count("[") == text["en"].count("]") == text["zh"].count("["), where


def test_every_place_has_a_value():
    for name, row in table()["facts"].items():
        known = {"value", *(row.get("values") or {})}
        for where, text in texts(row, name):
            assert places(text["en"]) <= known, where


def test_values_are_match_texts_of_known_form():
    for row in table()["facts"].values():
        for text in (row.get("values") or {}).values():
            assert Variables({}).match(text).facts


def test_what_decides_has_words():
    """A verdict or an absent event has no text of its own that is true when the condition fails. Without words such a
    condition is passed over, so a new one may wait for them; hardly any should."""
    lacking = set()
    for rule, tree in conditions():
        for node in ast.walk(tree):
            match node:
                case ast.Compare(
                    left=ast.Call(func=ast.Name(id="fact"), args=[ast.Constant(value=name)]),
                    comparators=[ast.Constant(value=bool() | str())],
                ) if name not in table()["facts"]:
                    lacking.add(f"{rule.id}: {name}")
                case ast.Call(func=ast.Name(id="exists"), args=[ast.Name(id=name)], keywords=[]) if not (
                    name in table()["events"] or name in _PRESENT
                ):
                    lacking.add(f"{rule.id}: {name}")
    assert len(lacking) <= 6, sorted(lacking)


def test_events_and_rivals_exist():
    assert set(table()["events"]) <= set(signal_table().events)
    for name, rivals in table()["rivals"].items():
        assert {name, *rivals} <= set(finding_ids()), name
        assert name not in rivals and len(set(rivals)) == len(rivals), name


def test_every_rule_has_rivals():
    assert {rule.id for rule in RULES} <= set(table()["rivals"]) | {
        rule.id for rule in RULES if rule.post_mortem is None
    }


def test_what_a_rule_takes_names_only_what_it_has():
    told = [rule for rule in RULES if rule.set_aside is not None]
    assert len(told) >= 20
    for rule in told:
        own = {*rule.thresholds, *rule.values, *(rule.post_mortem.values if rule.post_mortem else ())}
        assert places(rule.set_aside.en) == places(rule.set_aside.zh) <= own, rule.id
        assert rule.set_aside.en.startswith("it takes "), rule.id  # it stands after a semicolon


def test_fixed_words_fill_in():
    assert fixed("but", "en", held="a", seen="b") == "a, but b"
    assert fixed(">=", "zh", limit="3") == "至少 3"
