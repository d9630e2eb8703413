"""Runbooks: complete, in both languages, with actions of the closed list and steps that say what to expect."""

from __future__ import annotations

import re

import pytest

import infradoc_playbooks as playbooks
from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import ADVISERS
from infradoc_rules.catalog import load_catalog

PAGES = [(finding_id, lang) for finding_id in playbooks.ids() for lang in playbooks.LANGUAGES]
_STEP = re.compile(r"^\d+\. ", re.MULTILINE)


def test_every_rule_has_a_playbook_and_every_playbook_a_rule():
    assert set(playbooks.ids()) == {rule.id for rule in load_catalog().rules}


@pytest.mark.parametrize(("finding_id", "lang"), PAGES)
def test_the_sections_are_all_there_and_filled(finding_id, lang):
    found = playbooks.sections(playbooks.get(finding_id, lang))
    assert tuple(found) == playbooks.SECTIONS[lang]
    assert all(len(body) > 10 for body in found.values())


@pytest.mark.parametrize(("finding_id", "lang"), PAGES)
def test_each_diagnosis_step_has_a_command_and_an_expected_reading(finding_id, lang):
    steps = _STEP.split(playbooks.sections(playbooks.get(finding_id, lang))[playbooks.SECTIONS[lang][2]])[1:]
    assert len(steps) >= 3
    expected = re.compile("Expected|expected" if lang == "en" else "预期")
    assert all(expected.search(step) for step in steps), finding_id
    assert sum("`" in step for step in steps) >= 2


@pytest.mark.parametrize("finding_id", playbooks.ids())
def test_actions_are_of_the_closed_list_and_the_same_in_both_languages(finding_id):
    names = playbooks.actions(finding_id)
    assert names and set(names) <= set(ACTIONS)
    chinese = playbooks.sections(playbooks.get(finding_id, "zh"))["处理"]
    assert tuple(re.findall(r"^- `([a-z_]+)`", chinese, re.MULTILINE)) == names


@pytest.mark.parametrize("finding_id", playbooks.ids())
def test_what_the_rule_advises_is_in_the_playbook(finding_id):
    advised = set(load_catalog().get(finding_id).advised) & set(ACTIONS)
    assert advised <= set(playbooks.actions(finding_id))
    assert set(load_catalog().get(finding_id).advised) <= set(ADVISERS)


@pytest.mark.parametrize(("finding_id", "lang"), PAGES)
def test_requests_to_paste_say_that_they_are_json(finding_id, lang):
    """vLLM answers 415 to curl's own content type."""
    posts = [line for line in playbooks.get(finding_id, lang).splitlines() if " -d '{" in line]
    assert all("-H 'Content-Type: application/json'" in line for line in posts)


@pytest.mark.parametrize("finding_id", playbooks.ids())
def test_the_chinese_page_is_chinese(finding_id):
    text = playbooks.get(finding_id, "zh")
    assert sum("\u4e00" <= char <= "\u9fff" for char in text) > 200


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(playbooks.PlaybookError, match="did you mean 'engine-stalled'"):
        playbooks.get("engine-stall")
