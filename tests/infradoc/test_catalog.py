"""Rules, playbooks and actions name only what the others have."""

from __future__ import annotations

from pathlib import Path

import pytest

import infradoc_playbooks
from infradoc.catalog import CatalogError, action_problems, check_catalog, load_rules, playbook_problems, rule_problems
from infradoc_rules.actions import ACTIONS


def test_packaged_catalog_fits_together() -> None:
    assert check_catalog(load_rules()) == []


def test_names_that_lead_nowhere_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = rule_problems("moon-phase", ["tides"], ["fly"])
    assert len(told) == 4 and "fly" in told[-1] and "tides" in told[-2]
    assert rule_problems("kv-thrashing-preemption", ["queue-saturation"], []) == []
    monkeypatch.setattr(infradoc_playbooks, "actions", lambda name: ("fly",))
    assert playbook_problems("moon-phase") == [
        "playbook moon-phase: is no finding id.",
        "playbook moon-phase: names fly, which is no known action.",
    ]
    some = sorted(ACTIONS)[0]
    told = action_problems((set(ACTIONS) - {some}) | {"fly"})
    assert len(told) == 2 and some in told[0] and "fly" in told[1]
    assert action_problems(None) == []


def test_broken_rule_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("schema: 1\nid: x\n")
    with pytest.raises(CatalogError, match=r"x\.yaml, line 1"):
        load_rules(tmp_path)
