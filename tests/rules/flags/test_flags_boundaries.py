"""Each row of versions.yaml against the argument lists: no version lies on the wrong side of a boundary."""

from __future__ import annotations

from importlib import resources

import pytest

from infradoc_rules.versions import Running, version_of
from infradoc_rules.yaml_file import load_plain

ROWS = load_plain(resources.files("infradoc_rules") / "versions.yaml")["spellings"]
# Boundaries that are earlier than the parser's own: the name is taken there, and does nothing or only warns.
EFFECT_ENDS = {
    ("vllm", "--swap-space"),
    ("vllm", "--max-num-partial-prefills"),
    ("vllm", "--max-long-partial-prefills"),
    ("vllm", "--disable-mm-preprocessor-cache"),
    ("sglang", "--cuda-graph-max-bs"),
    ("sglang", "--cuda-graph-bs"),
    ("tgi", "--max-input-length"),
}
# Short for a longer name: argparse takes any beginning that fits one name alone.
ABBREVIATED = {("vllm", "--kv-cache-memory"): "--kv-cache-memory-bytes"}
LISTED = [(engine, name) for engine, rows in ROWS.items() if engine != "torch" for name in rows]


@pytest.mark.parametrize(("engine", "name"), LISTED)
def test_a_row_agrees_with_every_list(engine, name, argument_lists):
    full = ABBREVIATED.get((engine, name), name)
    for version in argument_lists.versions(engine):
        if not argument_lists.knows_kind(engine, full):
            pytest.skip("a variable of an engine whose lists hold flags alone")
        device = ROWS[engine][name].get("device")
        said = Running(engine, version, device=device).has(name)
        taken = argument_lists.takes(engine, version, full)
        if (engine, name) in EFFECT_ENDS:
            assert taken or not said, version
        else:
            assert said is taken, version


@pytest.mark.parametrize(("engine", "name"), LISTED)
def test_a_row_has_an_order(engine, name):
    row = ROWS[engine][name]
    since, until = (version_of(row.get(key), engine) for key in ("since", "until"))
    assert since is None or until is None or since < until
    assert set(row) <= {"since", "until", "never", "switch_on", "switch_off", "form", "unit", "device", "v0", "words"}
