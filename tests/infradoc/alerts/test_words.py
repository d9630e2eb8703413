"""Both languages have every word."""

from __future__ import annotations

from pathlib import Path

import infradoc.alerts
from infradoc.alerts import words
from infradoc.alerts.words import WORDS, clock, rfc3339, verdict


def test_both_languages_have_the_same_words_and_all_are_used() -> None:
    assert set(WORDS["en"]) == set(WORDS["zh"]) and all(WORDS["zh"].values())
    source = "".join(path.read_text() for path in Path(infradoc.alerts.__file__).parent.rglob("*.py"))
    spoken = source.replace(Path(words.__file__).read_text(), "")
    assert [name for name in WORDS["en"] if f'"{name}"' not in spoken and f"'{name}'" not in spoken] == []


def test_moments() -> None:
    assert clock(0.0) == "1970-01-01 00:00:00 UTC" and rfc3339(1.5) == "1970-01-01T00:00:01.500Z"
    assert clock(1e30) == "?"


def test_verdicts() -> None:
    assert verdict("not_fixed", "en") == "not fixed" and verdict("not_fixed", "zh") == "未修复"
