"""Runbooks: complete, in both languages, with actions of the closed list and steps that say what to expect."""

from __future__ import annotations

import pytest

import infradoc_playbooks as playbooks
from infradoc_playbooks import lint
from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import ADVISERS
from infradoc_rules.catalog import load_catalog
from infradoc_rules.vocabulary import finding_ids

PAGES = [(name, lang) for name in (*playbooks.ids(), *playbooks.mechanisms()) for lang in playbooks.LANGUAGES]
WITH_RULES = [name for name in playbooks.ids() if name != playbooks.HEALTHY]


def test_every_rule_has_a_playbook_and_every_playbook_but_one_a_rule():
    assert set(WITH_RULES) == {rule.id for rule in load_catalog().rules}
    assert set(playbooks.ids()) == set(finding_ids())


def test_every_page_is_complete():
    assert lint.problems() == []


@pytest.mark.parametrize("finding_id", WITH_RULES)
def test_actions_are_of_the_closed_list(finding_id):
    assert set(playbooks.actions(finding_id)) <= set(ACTIONS)


@pytest.mark.parametrize("finding_id", WITH_RULES)
def test_what_the_rule_advises_is_in_the_playbook(finding_id):
    advised = set(load_catalog().get(finding_id).advised) & set(ACTIONS)
    assert advised <= set(playbooks.actions(finding_id))
    assert set(load_catalog().get(finding_id).advised) <= set(ADVISERS)


def test_every_mechanism_is_reached_from_its_findings():
    for mechanism in playbooks.mechanisms():
        found = playbooks.findings_of(mechanism)
        assert found
        assert all(mechanism in playbooks.mechanisms_of(finding) for finding in found)


@pytest.mark.parametrize(("finding_id", "lang"), PAGES)
def test_requests_to_paste_say_that_they_are_json(finding_id, lang):
    """vLLM answers 415 to curl's own content type."""
    posts = [line for line in playbooks.get(finding_id, lang).splitlines() if " -d '{" in line]
    assert all("-H 'Content-Type: application/json'" in line for line in posts)


BROKEN = {
    "no command": ("`", "'", "no command or field"),
    "no expectation": ("Expected", "Seen", "what to expect"),
    "a section gone": ("## Trade-off", "## Aside", "must be"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_lint_sees_a_fault(fault, monkeypatch):
    old, new, says = BROKEN[fault]
    real = playbooks.get
    broken = "queue-saturation"
    monkeypatch.setattr(
        lint, "get", lambda name, lang="en": real(name, lang).replace(old, new) if name == broken else real(name, lang)
    )
    assert any(broken in problem and says in problem for problem in lint.problems())


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(playbooks.PlaybookError, match="did you mean 'engine-stalled'"):
        playbooks.get("engine-stall")
