"""The same first finding, however the artefacts of a case were mangled."""

from __future__ import annotations

import pytest

from infradoc.report.post_mortem import diagnose_artefacts

LEAST = 0.95


def _first(path, catalog):
    found = diagnose_artefacts(path, catalog)["findings"]
    return next((one["id"] for one in found if one["severity"] != "info"), None)


@pytest.fixture(scope="module")
def straight(cases_dir, catalog):
    cases = sorted(path.parent for path in cases_dir.glob("*/label.yaml"))
    return {case: _first(case, catalog) for case in cases}


@pytest.mark.parametrize("name", ["shuffled", "stripped", "markdown", "thinned", "renamed", "concatenated"])
def test_the_verdict_stays(name, mangles, straight, catalog, tmp_path):
    changed = {}
    for case, first in straight.items():
        out = tmp_path / case.name
        out.mkdir()
        mangles[name](case, out)
        now = _first(out, catalog)
        if now != first:
            changed[case.name] = (first, now)
    agreement = 1 - len(changed) / len(straight)
    print(f"{name}: agreement {agreement:.3f}")
    assert agreement >= LEAST, "\n".join(f"{case}: {was} became {now}" for case, (was, now) in changed.items())
