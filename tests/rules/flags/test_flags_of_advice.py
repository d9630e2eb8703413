"""Every action that the catalog's cases get, were their target of each known version, against its arguments."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.cases import case_frame, load_cases
from infradoc_rules.catalog import CASES_SUFFIX, default_dir, rule_files
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Fact
from infradoc_rules.rule_file import load_rule

LATER = re.compile(r"^\w+>=([\w.]+), (.*)$")
ENGINES = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama")


def _targets(engine):
    """(rule, its advised functions, frame) of each case that fires on that engine, or on one that is not named."""
    for path in rule_files(default_dir()):
        rule, _ = load_rule(path)
        for case in load_cases(path.with_name(path.stem + CASES_SUFFIX)):
            if case.expect == "fires" and case.system in (engine, None):
                yield rule, case_frame(case if case.system else case.model_copy(update={"system": engine}))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_advised_is_taken_by_the_version_it_is_advised_to(engine, argument_lists):
    wrong, advised = [], Counter()
    for rule, frame in _targets(engine):
        for version in argument_lists.versions(engine):
            facts = {**frame.facts, "target.version": Fact("target.version", version, "derived", None)}
            for action in actions_for(rule.advised, Advice(replace(frame, facts=facts), rule.thresholds)):
                if action.flag is None or not knob_table()[action.knob].spellings.get(engine):
                    continue
                later = LATER.match(action.flag)
                flag = later[2] if later else action.flag
                held = _list_for(argument_lists, engine, later[1] if later else version)
                advised[action.name] += 1
                fault = argument_lists.fault(engine, held, flag, bare=_in_words(action.to_value)) if held else None
                if fault:
                    wrong.append(f"{rule.id} {action.name} at {version}: {action.flag}: {fault}")
    assert not wrong, "\n".join(sorted(set(wrong)))
    assert sum(advised.values()) >= 10, advised


def _list_for(argument_lists, engine, version):
    return version if version in argument_lists.versions(engine) else None


def _in_words(value):
    """No value, or one for a reader ("AWQ weights of this model"): then the flag is named alone."""
    return value is None or (isinstance(value, str) and " " in value and not value.startswith("'"))
