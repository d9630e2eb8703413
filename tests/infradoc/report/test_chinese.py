"""Nothing that a reader of `--lang zh` sees is left in English."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import infradoc_playbooks
from infradoc.artefacts.notes import TEXTS
from infradoc.catalog import load_rules
from infradoc.report import artefact_words, words
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc_rules import actions
from infradoc_rules.schema import Text

CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Sentence-ends and commas of Chinese; a text of more than a few words has at least one.
CASES = Path(__file__).parents[2] / "data"
NAMES_ALONE = {
    "lang",
    "why",
    "ttft_p50_seconds",
    "ttft_p99_seconds",
    "itl_p50_seconds",
    "itl_p99_seconds",
    "source_failed",
    "no_source",
}


def _texts(value, where):
    """Every text in two languages below a part of a rule."""
    if isinstance(value, Text):
        yield where, value
    elif is_dataclass(value):
        for part in fields(value):
            yield from _texts(getattr(value, part.name), f"{where}.{part.name}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _texts(item, f"{where}[{place}]")


@pytest.mark.parametrize("rule", load_rules().rules, ids=lambda rule: rule.id)
def test_every_text_of_a_rule(rule):
    found = list(_texts(rule, rule.id))
    assert len(found) >= 4
    for where, text in found:
        assert CHINESE.search(text.zh), where
        assert text.zh != text.en, where
        # What is filled in must be the same in both, or one language loses a number.
        assert set(re.findall(r"\{(\w+)", text.zh)) == set(re.findall(r"\{(\w+)", text.en)), where


@pytest.mark.parametrize("finding", infradoc_playbooks.ids())
def test_every_playbook(finding):
    english = infradoc_playbooks.sections(infradoc_playbooks.get(finding, "en"))
    chinese = infradoc_playbooks.sections(infradoc_playbooks.get(finding, "zh"))
    assert len(chinese) == len(english)
    for name, text in chinese.items():
        assert CHINESE.search(text), f"{finding}: {name}"


def test_every_action():
    for name in actions.ACTIONS:
        assert CHINESE.search(actions.means(name, "zh")), name


@pytest.mark.parametrize("module", [words, artefact_words], ids=["words", "artefact_words"])
def test_every_fixed_word(module):
    assert module._EN.keys() == module._ZH.keys()
    for name, text in module._ZH.items():
        assert CHINESE.search(text) or name in NAMES_ALONE, name
        assert set(re.findall(r"\{(\w+)", text)) == set(re.findall(r"\{(\w+)", module._EN[name])), name


def test_every_note():
    for name, (english, chinese) in TEXTS.items():
        assert CHINESE.search(chinese), name
        assert set(re.findall(r"\{(\w+)", chinese)) == set(re.findall(r"\{(\w+)", english)), name


@pytest.fixture(scope="module")
def reports():
    catalog = load_rules()
    cases = sorted(path.parent for path in CASES.glob("*cases/*/label.yaml"))
    return {case.name: diagnose_artefacts(case, catalog, "zh") for case in cases}


def test_what_advisers_say(reports):
    """Sentences of actions and evidence on real cases; names of flags and figures alone need no translation."""
    left = set()
    for name, report in reports.items():
        for finding in report["findings"]:
            said = [finding["title"], finding["cause"], finding["impact"], finding["falsifier"]]
            said += [one["text"] for one in finding["evidence"]]
            said += [text for one in finding["actions"] for text in (one["why"], one["cost"]) if text]
            left |= {f"{name} {finding['id']}: {text}" for text in said if not CHINESE.search(text)}
        aside = [text for one in report["considered"] for text in (one["title"], one["why"])]
        left |= {f"{name} considered: {text}" for text in aside if not CHINESE.search(text)}
    assert sorted(left) == []
