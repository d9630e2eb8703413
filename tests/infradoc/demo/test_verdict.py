from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from infradoc.cli import demo
from infradoc.demo.faults import FOUR, SCENES, Fault
from infradoc.demo.run import FaultResult
from infradoc.load.spec import parse_class
from infradoc.model import Verdict, VerdictName
from infradoc.remediation.measure import ClientMeasured
from infradoc.remediation.run import Outcome
from infradoc_rules.catalog import load_catalog

FAULTS: list[Fault] = [fault for faults in SCENES.values() for fault in faults]


def result(verdict: VerdictName | None, place: int = 0) -> FaultResult:
    window = ClientMeasured([], 0, 1)
    outcome = None
    if verdict is not None:
        outcome = Outcome(Verdict(verdict, (), "because"), window, window, None, 1.0, True, False, "note")
    return FaultResult(FAULTS[place], None, None, outcome, (), 1.0, None)


@pytest.mark.parametrize(
    ("verdicts", "no_fix", "last", "code"),
    [
        (["fixed", "fixed"], False, "fixed", 0),
        (["fixed", "not_fixed"], False, "not_fixed", 10),
        (["worse", "fixed"], False, "worse", 20),
        (["fixed", None], False, "inconclusive", 30),
        (["not_fixed", "not_fixed"], True, "not_fixed", 0),
        (["not_fixed", "fixed"], True, "not_fixed", 1),
        (["fixed", "fixed"], True, "fixed", 1),
        (["not_fixed", None], True, "inconclusive", 1),
    ],
)
def test_last_line_and_exit_code(
    verdicts: list[VerdictName | None],
    no_fix: bool,
    last: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "demo.json"
    args = Namespace(no_fix=no_fix, json=path, seed=1, model="m")
    results = [result(verdict, place) for place, verdict in enumerate(verdicts)]
    assert demo.finish(args, results, 1.0) == code
    assert capsys.readouterr().out.splitlines()[-1] == f"verdict: {last}"
    data = json.loads(path.read_text())
    assert (data["verdict"], data["control"], len(data["faults"])) == (last, no_fix, 2)


def test_the_articles_four_are_played() -> None:
    assert FOUR == ("oom", "fragmentation", "tokenization", "truncation")
    catalog = load_catalog()
    assert all(catalog.get(fault.finding) for fault in FAULTS)


def test_only_the_leak_is_a_switch_inside_the_engine() -> None:
    assert [fault.name for fault in FAULTS if fault.switch] == ["fragmentation-leak"]
    for fault in FAULTS:
        assert ("--enable-faults" in fault.serve) == (fault.switch is not None)
        assert "--fault" not in fault.serve
        for spec in fault.load:
            parse_class(spec)
        if fault.paced is not None:
            assert parse_class(fault.paced.spec).closed == fault.paced.clients
