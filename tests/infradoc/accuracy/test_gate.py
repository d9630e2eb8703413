"""The gate: what the rules must get right on the labelled cases. The misses are printed either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.accuracy.score import case_folders, score, shares
from infradoc.accuracy.table import line
from infradoc.catalog import load_rules

DATA = Path(__file__).parents[2] / "data"
AT_LEAST = {"top1": 0.95, "fix": 0.90}
AT_MOST = {"forbid": 0.02, "false_alarm": 0.0}


@pytest.fixture(scope="module")
def rows():
    return score(DATA / "cases", load_rules())


def _said(rows):
    return "\n".join([*(row.short for row in rows if row.short), line(rows)])


@pytest.mark.parametrize("name", [*AT_LEAST, *AT_MOST])
def test_shares_of_the_labelled_cases(name, rows):
    print(_said(rows))
    value = shares(rows)[name][0]
    assert value is not None
    if name in AT_LEAST:
        assert value >= AT_LEAST[name], _said(rows)
    else:
        assert value <= AT_MOST[name], _said(rows)


def test_no_case_fails_to_be_read(rows):
    assert [row.short for row in rows if row.error] == []
    assert sum(row.label.healthy for row in rows) == 15


@pytest.mark.skipif(not (DATA / "own_cases").is_dir(), reason="there are no cases of our own")
def test_our_own_cases():
    rows = score(DATA / "own_cases", load_rules())
    print(_said(rows))
    assert len(rows) == len(case_folders(DATA / "own_cases"))
    assert [row.short for row in rows if row.short and not row.votes.get("top1")] == []
