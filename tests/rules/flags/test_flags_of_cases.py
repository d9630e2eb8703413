"""Every flag that the labelled incidents are advised, against the arguments of the version that they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infradoc.report.post_mortem import diagnose_artefacts
from infradoc_rules.catalog import default_dir, load_catalog
from infradoc_rules.knobs import knob_table
from infradoc_rules.versions import version_of

DATA = Path(__file__).parents[2] / "data"
LATER = re.compile(r"^(\w+)>=([\w.]+), (.*)$")


def _near(argument_lists, engine, version):
    """The lists that the version lies between; all where the version is not known."""
    listed = argument_lists.versions(engine)
    wanted = version_of(version, engine)
    if wanted is None:
        return listed
    older = [held for held in listed if version_of(held, engine) <= wanted]
    newer = [held for held in listed if version_of(held, engine) >= wanted]
    return (*older[-1:], *newer[:1])


def _worded(report):
    """(flag, is it a name alone?) of each action that a known engine's knob is named in."""
    engine = report["target"]["system"]
    for finding in report["findings"]:
        for action in finding["actions"]:
            flag, after = action.get("flag"), action.get("to")
            if flag is not None and knob_table()[action["knob"]].spellings.get(engine or ""):
                yield flag, after is None or (isinstance(after, str) and " " in after)


@pytest.mark.parametrize("root", ["cases", "own_cases"])
def test_what_an_incident_is_advised_is_taken_by_its_version(root, argument_lists):
    catalog, wrong, seen = load_catalog(default_dir()), [], 0
    for folder in sorted(path.parent for path in (DATA / root).glob("*/label.yaml")):
        report = diagnose_artefacts(folder, catalog)
        engine, version = report["target"]["system"], report["target"].get("version")
        if not engine or not argument_lists.versions(engine):
            continue
        for flag, bare in _worded(report):
            seen += 1
            later = LATER.match(flag)
            lists = _near(argument_lists, engine, later[2] if later else version)
            faults = [argument_lists.fault(engine, held, later[3] if later else flag, bare) for held in lists]
            if faults and all(faults):
                wrong.append(f"{folder.name} ({engine} {version}): {flag}: {faults[-1]}")
    assert not wrong, "\n".join(wrong)
    assert seen >= 100
